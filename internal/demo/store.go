package demo

import (
	"bytes"
	"fmt"
	"image"
	"image/jpeg"
	"net/http"
	"strings"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/reprisemq/reprise/examples/coverart"
)

// store is the archive: an S3 in memory, behind HTTP and a layer of faults.
type store struct {
	*localServer
	backend *s3mem.Backend
	picture []byte // what every image looks like
}

func startStore(f *faults) (*store, error) {
	var picture bytes.Buffer
	if err := jpeg.Encode(&picture, image.NewGray(image.Rect(0, 0, 16, 16)), nil); err != nil {
		return nil, fmt.Errorf("demo: picture: %w", err)
	}
	s := &store{backend: s3mem.New(), picture: picture.Bytes()}
	f.next = makeBuckets(s.backend, gofakes3.New(s.backend, gofakes3.WithTimeSkewLimit(0)).Server())
	server, err := serveLocally("store", f)
	s.localServer = server
	return s, err
}

// upload puts an image into the store past the faults, as somebody did who
// uploaded it some time ago.
func (s *store) upload(l coverart.Location) error {
	if err := makeBucket(s.backend, l.Bucket); err != nil {
		return err
	}
	_, err := s.backend.PutObject(l.Bucket, l.Key, map[string]string{"Content-Type": "image/jpeg"},
		bytes.NewReader(s.picture), int64(len(s.picture)), nil)
	if err != nil {
		return fmt.Errorf("demo: upload %s: %w", l, err)
	}
	return nil
}

// makeBuckets does what the Internet Archive does on x-archive-auto-make-bucket.
func makeBuckets(backend gofakes3.Backend, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.Header.Get("x-archive-auto-make-bucket") == "1" {
			bucket, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
			if err := makeBucket(backend, bucket); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func makeBucket(backend gofakes3.Backend, name string) error {
	err := backend.CreateBucket(name)
	if err != nil && !gofakes3.HasErrorCode(err, gofakes3.ErrBucketAlreadyExists) {
		return fmt.Errorf("demo: make bucket %s: %w", name, err)
	}
	return nil
}
