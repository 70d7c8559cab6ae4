package rehearsal

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/reprisemq/reprise/examples/coverart/coverart"
)

func bucketOf(u *url.URL) string {
	bucket, _, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	return bucket
}

// refusingTransport is an HTTP transport. It rejects all requests for one bucket instead of sending them to the store.
type refusingTransport struct {
	bucket string
	next   http.RoundTripper
}

const slowDown = `<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`

// RoundTrip implements http.RoundTripper.
func (t refusingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if bucketOf(r.URL) != t.bucket {
		return t.next.RoundTrip(r)
	}
	if r.Body != nil {
		_ = r.Body.Close() // a transport must always close the body
	}
	return &http.Response{
		Status: "503 Slow Down", StatusCode: http.StatusServiceUnavailable, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/xml"}}, Body: io.NopCloser(bytes.NewReader([]byte(slowDown))),
		ContentLength: int64(len(slowDown)), Request: r,
	}, nil
}

// makeBuckets creates missing buckets in a store that does not create them automatically.
func makeBuckets(ctx context.Context, c Config, names []string) error {
	u, err := url.Parse(c.S3)
	if err != nil {
		return fmt.Errorf("rehearsal: S3 address must be a URL (example: http://host:port)")
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds: c.S3Credentials, Secure: u.Scheme == "https", BucketLookup: minio.BucketLookupPath, MaxRetries: 1,
	})
	if err != nil {
		return fmt.Errorf("rehearsal: cannot create S3 client: %w", err)
	}
	for _, name := range names {
		exists, err := client.BucketExists(ctx, name)
		if err == nil && !exists {
			err = client.MakeBucket(ctx, name, minio.MakeBucketOptions{})
		}
		if err != nil {
			return fmt.Errorf("rehearsal: cannot create S3 bucket %s: %w", name, err)
		}
	}
	return nil
}

// upload stores an image before an event, as if a user had uploaded the image.
func upload(ctx context.Context, archive coverart.Archive, l coverart.Location) error {
	return archive.Put(ctx, coverart.Object{
		Location: l, ContentType: "image/jpeg", Body: []byte("picture"),
		Headers: http.Header{"X-Archive-Auto-Make-Bucket": {"1"}},
	})
}
