package coverart

import (
	"context"
	"maps"
	"net/http"
)

type headersKey struct{}

// withHeaders returns a context that makes headerTransport add the headers h to a request. The S3 client cannot send
// these headers itself, because it renames all non-standard headers to x-amz-meta-….
func withHeaders(ctx context.Context, h http.Header) context.Context {
	return context.WithValue(ctx, headersKey{}, h)
}

// headerTransport adds the headers from withHeaders to requests that are already signed. The store accepts the
// additional headers, because a signature covers only the headers that it lists.
type headerTransport struct {
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t headerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if h, ok := r.Context().Value(headersKey{}).(http.Header); ok {
		r = r.Clone(r.Context()) // a transport must not modify its request
		maps.Copy(r.Header, h)
	}
	return t.next.RoundTrip(r)
}
