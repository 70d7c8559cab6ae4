package coverart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Config configures the connection to an archive. Endpoint is required.
type S3Config struct {
	// Endpoint is the http or https URL of the store, without a path. The bucket becomes the first part of the path.
	Endpoint string

	// Credentials sign requests. The Internet Archive requires signatures of version 2 (credentials.NewStaticV2).
	// Default: requests are not signed.
	Credentials *credentials.Credentials

	// Bucket is an existing bucket for the objects of all releases, whose keys then begin with mbid-{gid}/. Default: each
	// release has a bucket, which the store of the Internet Archive creates.
	Bucket string

	// Region is part of a version 4 signature. Default: us-east-1.
	Region string

	// Transport sends the requests. Default: http.DefaultTransport.
	Transport http.RoundTripper
}

// S3 is an Archive on an S3 server.
type S3 struct {
	client *minio.Client
	bucket string // S3Config.Bucket
}

// NewS3 returns the archive at c.Endpoint. It does not connect to the archive.
func NewS3(c S3Config) (*S3, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("coverart: S3Config.Endpoint must be a URL such as http://host:port: got %q", c.Endpoint)
	}
	if c.Credentials == nil {
		c.Credentials = credentials.NewStatic("", "", "", credentials.SignatureAnonymous)
	}
	if c.Region == "" {
		c.Region = "us-east-1" // otherwise, the client would request the region of each bucket
	}
	if c.Transport == nil {
		c.Transport = http.DefaultTransport
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds:        c.Credentials,
		Secure:       u.Scheme == "https",
		Region:       c.Region,
		BucketLookup: minio.BucketLookupPath,
		Transport:    headerTransport{c.Transport},
		// The client makes one attempt. Its retries would block the worker, and would not survive a crash.
		MaxRetries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("coverart: cannot create S3 client for %s: %w", c.Endpoint, err)
	}
	return &S3{client: client, bucket: c.Bucket}, nil
}

// place returns the bucket and the key for a location.
func (s *S3) place(l Location) (bucket, key string) {
	if s.bucket == "" {
		return l.Bucket, l.Key
	}
	return s.bucket, l.String()
}

// Put writes an object in one request.
func (s *S3) Put(ctx context.Context, o Object) error {
	bucket, key := s.place(o.Location)
	_, err := s.client.PutObject(withHeaders(ctx, o.Headers), bucket, key, bytes.NewReader(o.Body), int64(len(o.Body)),
		minio.PutObjectOptions{ContentType: o.ContentType, DisableMultipart: true})
	return explain("PUT", o.Location, err)
}

// Copy copies an object within the store (x-amz-copy-source). S3 can report a failed copy in a response with a success
// status. Copy also returns this as an error.
func (s *S3) Copy(ctx context.Context, from, to Location, headers http.Header) error {
	var source minio.CopySrcOptions
	var target minio.CopyDestOptions
	source.Bucket, source.Object = s.place(from)
	target.Bucket, target.Object = s.place(to)
	_, err := s.client.CopyObject(withHeaders(ctx, headers), target, source)
	return explain("COPY", from, err)
}

// Delete deletes an object.
func (s *S3) Delete(ctx context.Context, l Location, headers http.Header) error {
	bucket, key := s.place(l)
	return explain("DELETE", l, s.client.RemoveObject(withHeaders(ctx, headers), bucket, key, minio.RemoveObjectOptions{}))
}

// Has reports whether an object exists. It sends a HEAD request.
func (s *S3) Has(ctx context.Context, l Location) (bool, error) {
	bucket, key := s.place(l)
	_, err := s.client.StatObject(ctx, bucket, key, minio.StatObjectOptions{})
	if err = explain("HEAD", l, err); errors.Is(err, ErrNotInArchive) {
		return false, nil
	}
	return err == nil, err
}

// gone is the message that the Internet Archive sends for a removed item, instead of status 404.
const gone = "The item you are trying to edit cannot be retrieved"

// explain converts an error of the S3 client into an error that contains the status, the error code and the request,
// for the failed queue. The status comes first, because long errors are truncated.
func explain(verb string, l Location, err error) error {
	if err == nil {
		return nil
	}
	answer, ok := errors.AsType[minio.ErrorResponse](err)
	switch {
	case !ok:
		return fmt.Errorf("%s %s: %w", verb, l, err)
	case answer.StatusCode/100 == 2 && strings.HasPrefix(answer.Code, strconv.Itoa(answer.StatusCode)):
		// The client expects the exact status and document that Amazon sends. Other stores differ, so any success
		// status without an error code counts as success.
		return nil
	case answer.StatusCode == http.StatusNotFound || strings.Contains(answer.Resource, gone):
		return fmt.Errorf("%s %s: %w (%d %s)", verb, l, ErrNotInArchive, answer.StatusCode, answer.Code)
	}
	return fmt.Errorf("%d %s: %s %s: %w", answer.StatusCode, answer.Code, verb, l, err)
}
