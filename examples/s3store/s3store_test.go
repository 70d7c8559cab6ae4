package s3store_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/claimcheck"
	"github.com/reprisemq/reprise/examples/s3store"
)

func TestBodiesAreStoredInBucket(t *testing.T) {
	server := httptest.NewServer(gofakes3.New(s3mem.New(), gofakes3.WithTimeSkewLimit(0)).Server())
	defer server.Close()
	client, err := minio.New(strings.TrimPrefix(server.URL, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4("key", "secret", ""), Region: "us-east-1", BucketLookup: minio.BucketLookupPath, MaxRetries: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.MakeBucket(t.Context(), "bodies", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	store := s3store.Store{Client: client, Bucket: "bodies", Prefix: "orders/"}
	if _, err := store.Get(t.Context(), "missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("get a missing body: got %v, want fs.ErrNotExist", err)
	}
	check, err := claimcheck.New(claimcheck.Config{Store: store, Threshold: 100})
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte("x"), 6<<20)
	m := &reprise.Message{Body: body}
	for range 2 {
		m.Body = body
		if err := check.BeforePublish(t.Context(), m); err != nil || !claimcheck.IsReference(m) {
			t.Fatalf("got the body %.100q, %v; want a reference", m.Body, err)
		}
	}
	h := check.Middleware(reprise.HandlerFunc(func(_ context.Context, d *reprise.Delivery) error {
		if !bytes.Equal(d.Body, body) {
			t.Errorf("got a body of %d bytes, want %d", len(d.Body), len(body))
		}
		return nil
	}))
	if err := h.Handle(t.Context(), &reprise.Delivery{Message: *m}); err != nil {
		t.Fatal(err)
	}
}
