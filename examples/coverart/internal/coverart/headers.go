package coverart

import (
	"context"
	"maps"
	"net/http"
)

type headersKey struct{}

// withHeaders adds the headers of the archive to requests with this context. The S3 client has no option for headers that are
// neither standard S3 headers nor user metadata, which it would rename to x-amz-meta-….
func withHeaders(ctx context.Context, h http.Header) context.Context {
	return context.WithValue(ctx, headersKey{}, h)
}

// headerTransport adds the headers of withHeaders to signed requests. The store accepts them, because a signature covers
// only the headers that it lists.
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
