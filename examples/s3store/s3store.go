// Package s3store stores the bodies of package claimcheck in a bucket of an S3 server. Let a lifecycle rule of the bucket
// expire the objects: Put renews the age of an object.
package s3store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"

	"github.com/minio/minio-go/v7"
)

// Store implements claimcheck.Store.
type Store struct {
	Client *minio.Client // required
	Bucket string        // must exist
	Prefix string        // of the keys, for example "bodies/"
}

// Put stores a body.
func (s Store) Put(ctx context.Context, key string, body []byte) error {
	_, err := s.Client.PutObject(ctx, s.Bucket, s.Prefix+key, bytes.NewReader(body), int64(len(body)), minio.PutObjectOptions{ContentType: "application/octet-stream"})
	return err
}

// Get returns a body. If there is none, the error matches fs.ErrNotExist.
func (s Store) Get(ctx context.Context, key string) ([]byte, error) {
	object, err := s.Client.GetObject(ctx, s.Bucket, s.Prefix+key, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(object)
	if minio.ToErrorResponse(err).StatusCode == http.StatusNotFound {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return body, errors.Join(err, object.Close())
}
