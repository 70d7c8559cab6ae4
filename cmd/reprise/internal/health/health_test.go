package health

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Concurrent requests share a check of the broker and the databases.
func TestReadyRequestsShareCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checks atomic.Int32
		h := &Checks{stores: []Store{{Kind: "archive", Name: "db", Healthy: func(context.Context) error {
			time.Sleep(time.Second)
			return fmt.Errorf("check %d", checks.Add(1))
		}}}}
		ask := func(ctx context.Context) string {
			w := httptest.NewRecorder()
			h.ready(w, httptest.NewRequestWithContext(ctx, "GET", "/readyz", nil))
			return w.Body.String()
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if got := ask(t.Context()); !strings.Contains(got, "archive db: check 1") {
					t.Errorf("readiness: got %q, want \"archive db: check 1\"", got)
				}
			})
		}
		synctest.Wait()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if got := ask(gone); got != "" {
			t.Errorf("canceled request: got %q, want no response", got)
		}
		all.Wait()
		if got := ask(t.Context()); !strings.Contains(got, "archive db: check 2") {
			t.Errorf("next request: got %q, want \"archive db: check 2\"", got)
		}
	})
}
