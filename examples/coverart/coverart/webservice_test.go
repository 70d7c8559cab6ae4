package coverart_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/coverart/coverart"
)

func TestHTTPWebService(t *testing.T) {
	status, retryAfter := http.StatusOK, "7"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/ws/2/release/"+gidA+"?inc=artists" || r.UserAgent() != "test/1" {
			t.Errorf("request: got %s with User-Agent %q, want /ws/2/release/%s?inc=artists with test/1", r.URL, r.UserAgent(), gidA)
		}
		if status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte("<metadata/>"))
	}))
	defer server.Close()
	s := &coverart.HTTPWebService{BaseURL: server.URL, UserAgent: "test/1"}
	if body, err := s.ReleaseXML(t.Context(), gidA); err != nil || string(body) != "<metadata/>" {
		t.Errorf("ReleaseXML: got %q, %v, want <metadata/>", body, err)
	}
	status = http.StatusInternalServerError
	if _, err := s.ReleaseXML(t.Context(), gidA); err == nil || !strings.Contains(err.Error(), "500") {
		t.Errorf("got %v, want an error with status 500", err)
	}
	status = http.StatusServiceUnavailable
	_, err := s.ReleaseXML(t.Context(), gidA)
	if later, ok := errors.AsType[*reprise.RetryAfterError](err); !ok || later.Delay != 7*time.Second {
		t.Errorf("got %v, want a RetryAfterError with 7s", err)
	}
	retryAfter = "9223372036854775807"
	_, err = s.ReleaseXML(t.Context(), gidA)
	if later, ok := errors.AsType[*reprise.RetryAfterError](err); !ok || later.Delay < 24*time.Hour {
		t.Errorf("got %v, want a RetryAfterError with at least 24h", err)
	}
	server.Close()
	if _, err := s.ReleaseXML(t.Context(), gidA); err == nil {
		t.Error("closed server: got no error")
	}
}
