package cdnpurge_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/examples/cdnpurge/cdnpurge"
)

func ask(c *cdnpurge.CDN, method, path, body string) int {
	w := httptest.NewRecorder()
	c.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code
}

// When the queue is full, the CDN refuses purges. The queue shrinks at the given rate, and then has room for purges
// again.
func TestCDNRefusesUntilQueueHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rate := 60.0
		c := &cdnpurge.CDN{Room: 2, Rate: func(time.Time) float64 { return rate }}
		purge := func(want int) {
			t.Helper()
			if got := ask(c, "POST", "/ccu/v3/invalidate/url/production", `{"objects":["/"]}`); got != want {
				t.Errorf("status: got %d, want %d (%d purges in the queue)", got, want, c.Length())
			}
		}
		time.Sleep(time.Hour) // time with an empty queue does not accumulate
		purge(http.StatusCreated)
		purge(http.StatusCreated)
		purge(http.StatusInsufficientStorage)
		time.Sleep(59 * time.Second)
		purge(http.StatusInsufficientStorage)
		time.Sleep(time.Second)
		purge(http.StatusCreated)
		purge(http.StatusInsufficientStorage)
		rate = 3600
		time.Sleep(2 * time.Second)
		if n := c.Length(); n != 0 {
			t.Errorf("length of the queue: got %d, want 0", n)
		}
	})
}

func TestCDNRefusesInvalidRequests(t *testing.T) {
	c := &cdnpurge.CDN{Room: 10, Rate: func(time.Time) float64 { return 1 }}
	for _, tc := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/ccu/v3/delete/tag/staging", `{"objects":["news"]}`, http.StatusCreated},
		{"POST", "/ccu/v3/invalidate/everything/production", `{"objects":["/"]}`, http.StatusNotFound},
		{"POST", "/", `{"objects":["/"]}`, http.StatusNotFound},
		{"GET", "/ccu/v3/invalidate/url/production", "", http.StatusMethodNotAllowed},
		{"POST", "/ccu/v3/invalidate/url/production", "/index.html", http.StatusBadRequest},
		{"POST", "/ccu/v3/invalidate/url/production", `{"objects":[]}`, http.StatusBadRequest},
		{"POST", "/ccu/v3/invalidate/url/production", `{"objects":["` + strings.Repeat("x", 50_000) + `"]}`, http.StatusRequestEntityTooLarge},
	} {
		if got := ask(c, tc.method, tc.path, tc.body); got != tc.want {
			t.Errorf("%s %s %s: got %d, want %d", tc.method, tc.path, tc.body, got, tc.want)
		}
	}
	if n := c.Length(); n != 1 {
		t.Errorf("length of the queue: got %d, want 1", n)
	}
}
