package cdnpurge_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/cdnpurge/cdnpurge"
)

// The response of the CDN determines the outcome of a message.
func TestPurgerOutcomes(t *testing.T) {
	for _, tc := range []struct {
		status int
		text   string
		retry  bool
		err    string
	}{
		{http.StatusCreated, "queued", false, ""},
		{http.StatusOK, "", false, ""},
		{http.StatusInsufficientStorage, "queue is full", true, "507: queue is full"},
		{http.StatusServiceUnavailable, "", true, "503: Service Unavailable"},
		{http.StatusTooManyRequests, "slowly", true, "429: slowly"},
		{http.StatusRequestTimeout, "", true, "408: Request Timeout"},
		{http.StatusBadRequest, "no such name", false, "400: no such name"},
		{http.StatusNotFound, "", false, "404: Not Found"},
	} {
		t.Run(http.StatusText(tc.status), func(t *testing.T) {
			var asked *http.Request
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.text))
			}))
			defer server.Close()
			p := &cdnpurge.Purger{URL: server.URL}
			err := p.Handler().Handle(t.Context(), &reprise.Message{RoutingKey: "tag", MessageID: "17", Body: []byte(`["news"]`)})
			if asked.Method != http.MethodPost || asked.URL.Path != "/purge/tag" || asked.Header.Get("Idempotency-Key") != "17" {
				t.Errorf("request: got %s %s with %v, want POST /purge/tag with Idempotency-Key 17",
					asked.Method, asked.URL, asked.Header)
			}
			if tc.err == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			refused, answered := errors.AsType[*cdnpurge.StatusError](err)
			_, parked := errors.AsType[*reprise.ParkError](err)
			if !answered || refused.Error() != tc.err || parked == tc.retry {
				t.Errorf("got %v (parked: %v), want %q", err, parked, tc.err)
			}
		})
	}
}

// With an empty key, all messages without an ID would have the same key.
func TestPurgerOmitsKeyOfMessageWithoutID(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if keys, has := r.Header["Idempotency-Key"]; has {
			t.Errorf("idempotency keys: got %q, want none", keys)
		}
	}))
	defer server.Close()
	p := &cdnpurge.Purger{URL: server.URL}
	if err := p.Handler().Handle(t.Context(), &reprise.Message{RoutingKey: "url", Body: []byte(`["/"]`)}); err != nil {
		t.Error(err)
	}
}

// Purger retries a purge if the CDN is unreachable, and parks an invalid body.
func TestPurgerWithoutResponse(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	p := &cdnpurge.Purger{URL: server.URL}
	server.Close()
	err := p.Handler().Handle(t.Context(), &reprise.Message{RoutingKey: "url", Body: []byte(`["/"]`)})
	if _, parked := errors.AsType[*reprise.ParkError](err); err == nil || parked {
		t.Errorf("unreachable CDN: got %v, want an error without ParkError", err)
	}
	err = p.Handler().Handle(t.Context(), &reprise.Message{RoutingKey: "url", Body: []byte("/index.html")})
	if _, parked := errors.AsType[*reprise.ParkError](err); !parked {
		t.Errorf("invalid JSON: got %v, want a ParkError", err)
	}
}
