package coverart_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/reprisemq/reprise/examples/coverart/coverart"
)

// fakeArchive is an S3 server that records its requests.
type fakeArchive struct {
	t       *testing.T
	backend *s3mem.Backend
	client  *coverart.S3

	mu       sync.Mutex
	requests []*http.Request
	refuse   string // method that fails with 503 SlowDown
}

func newArchive(t *testing.T) *fakeArchive {
	t.Helper()
	a := &fakeArchive{t: t, backend: s3mem.New()}
	s3 := gofakes3.New(a.backend, gofakes3.WithTimeSkewLimit(0)).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.requests = append(a.requests, r.Clone(t.Context()))
		refuse := a.refuse == r.Method
		a.mu.Unlock()
		if refuse {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`)
			return
		}
		// Like the store of the Internet Archive, create a bucket only if the request contains the header.
		if r.Header.Get("x-archive-auto-make-bucket") == "1" {
			bucket, _, _ := strings.Cut(r.URL.Path[1:], "/")
			_ = a.backend.CreateBucket(bucket) // fails if the bucket exists
		}
		s3.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	client, err := coverart.NewS3(coverart.S3Config{Endpoint: server.URL, Transport: server.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	a.client = client
	return a
}

func (a *fakeArchive) store(l coverart.Location, body string) {
	a.t.Helper()
	_ = a.backend.CreateBucket(l.Bucket) // fails if the bucket exists
	if _, err := a.backend.PutObject(l.Bucket, l.Key, nil, bytes.NewReader([]byte(body)), int64(len(body)), nil); err != nil {
		a.t.Fatal(err)
	}
}

// content returns the content of an object, or "" if it does not exist.
func (a *fakeArchive) content(l coverart.Location) string {
	a.t.Helper()
	o, err := a.backend.GetObject(l.Bucket, l.Key, nil)
	if err != nil {
		return ""
	}
	defer func() { _ = o.Contents.Close() }()
	body, err := io.ReadAll(o.Contents)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(body)
}

// takeRequests returns the requests since the last call.
func (a *fakeArchive) takeRequests() []*http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.requests
	a.requests = nil
	return all
}

// wantRequest checks the method, the object and the archive's headers. Additional
// headers are an error.
func wantRequest(t *testing.T, r *http.Request, method string, l coverart.Location, headers map[string]string) {
	t.Helper()
	if r.Method != method || r.URL.Path != "/"+l.String() {
		t.Errorf("request: got %s %s, want %s /%s", r.Method, r.URL.Path, method, l)
	}
	got := map[string]string{}
	for name := range r.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-archive-") {
			got[lower] = r.Header.Get(name)
		}
	}
	for name, value := range headers {
		if got[name] != value {
			t.Errorf("%s %s: header %s is %q, want %q", r.Method, r.URL.Path, name, got[name], value)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("%s %s: additional headers: got %v, want none", r.Method, r.URL.Path, got)
	}
}
