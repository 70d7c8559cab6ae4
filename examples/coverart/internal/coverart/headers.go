package coverart

import (
	"context"
	"maps"
	"net/http"
)

type headersKey struct{}

// withHeaders makes requests under ctx carry the archive's headers. The S3
// client has no place for headers that are neither S3's own nor user metadata
// (those it would rename to x-amz-meta-…).
func withHeaders(ctx context.Context, h http.Header) context.Context {
	return context.WithValue(ctx, headersKey{}, h)
}

// headerTransport adds them. It does so after the request was signed, which
// the store does not mind: a signature covers the headers it names.
type headerTransport struct {
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t headerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if h, ok := r.Context().Value(headersKey{}).(http.Header); ok {
		r = r.Clone(r.Context()) // a transport must not change the request it is given
		maps.Copy(r.Header, h)
	}
	return t.next.RoundTrip(r)
}
