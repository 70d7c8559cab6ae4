package standin

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/reprisemq/reprise/examples/coverart/coverart"
)

// Store is an S3 store in memory. Like the store of the Internet Archive, it creates a missing bucket if a PUT request
// contains the header x-archive-auto-make-bucket.
type Store struct {
	backend *s3mem.Backend
	s3      http.Handler
}

// NewStore returns an empty Store.
func NewStore() *Store {
	backend := s3mem.New()
	return &Store{backend, gofakes3.New(backend, gofakes3.WithTimeSkewLimit(0)).Server()}
}

// ServeHTTP implements http.Handler.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut && r.Header.Get("x-archive-auto-make-bucket") == "1" {
		bucket, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if err := s.makeBucket(bucket); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	s.s3.ServeHTTP(w, r)
}

// Upload writes an image directly to the store, without an HTTP request. It simulates an earlier upload by a user.
func (s *Store) Upload(l coverart.Location, picture []byte) error {
	err := s.makeBucket(l.Bucket)
	if err == nil {
		_, err = s.backend.PutObject(l.Bucket, l.Key, map[string]string{"Content-Type": "image/jpeg"}, bytes.NewReader(picture), int64(len(picture)), nil)
	}
	if err != nil {
		return fmt.Errorf("standin: cannot upload %s: %w", l, err)
	}
	return nil
}

func (s *Store) makeBucket(name string) error {
	err := s.backend.CreateBucket(name)
	if err != nil && !gofakes3.HasErrorCode(err, gofakes3.ErrBucketAlreadyExists) {
		return fmt.Errorf("standin: cannot create bucket %s: %w", name, err)
	}
	return nil
}
