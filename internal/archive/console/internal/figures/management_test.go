package figures

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/topology"
)

// Queues returns the figures from the API, but not the figures of queues that Reprise uses internally.
func TestBrokerQueues(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "u" || password != "p" || r.URL.EscapedPath() != "/api/queues/a%2Fb" {
			http.Error(w, r.URL.String(), http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`[{"name":"orders","messages_ready":3,"messages_unacknowledged":2,"consumers":1,"arguments":{"x-message-ttl":5000},
			"message_stats":{"publish_details":{"rate":1.5},"ack_details":{"rate":0.2}}},{"name":"new"},
			{"name":"reprise.outcomes.A7"},{"name":"reprise.control.B8"},{"name":"reprise.paused.orders"}]`))
	}))
	defer s.Close()
	got, err := NewBroker(mgmtapi.API{URL: s.URL + "/api/", User: "u", Password: "p", VHost: "a/b"}).Queues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	count := func(n int64) mgmtapi.Field[int64] { return mgmtapi.Field[int64]{Value: n, Known: true} }
	stats := mgmtapi.Stats{Published: count(0), Acked: count(0), Get: count(0), GetNoAck: count(0), DeliverNoAck: count(0), PublishRate: mgmtapi.Field[float64]{Known: true}}
	orders := mgmtapi.Queue{Name: "orders", Ready: count(3), Unacked: count(2), Consumers: count(1), Args: topology.Table{"x-message-ttl": int64(5000)}, Stats: stats}
	orders.Stats.PublishRate.Value = 1.5
	want := map[string]mgmtapi.Queue{"orders": orders, "new": {Name: "new", Args: topology.Table{}, Stats: stats}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := NewBroker(mgmtapi.API{URL: s.URL, User: "u", Password: "wrong", VHost: "a/b"}).Queues(t.Context()); err == nil || !strings.Contains(err.Error(), "may not see") {
		t.Errorf("wrong password: got error %v", err)
	}
}

// Concurrent callers share one fetch. After Age, the next caller fetches the value again. Errors are also cached.
func TestCachedSharesFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := Cached[int64]{Age: time.Second}
		fetch := func(context.Context) (int64, error) {
			time.Sleep(100 * time.Millisecond)
			n := asked.Add(1)
			if n == 2 {
				return 0, ErrNoFigures
			}
			return n, nil
		}
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if n, err := r.Get(t.Context(), fetch); n != 1 || err != nil {
					t.Errorf("first fetch: got %d, want 1; error %v", n, err)
				}
			})
		}
		all.Wait()
		time.Sleep(time.Second)
		for range 2 {
			if _, err := r.Get(t.Context(), fetch); !errors.Is(err, ErrNoFigures) {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		if n, err := r.Get(t.Context(), fetch); n != 3 || err != nil {
			t.Errorf("third fetch: got %d, want 3; error %v", n, err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		time.Sleep(time.Second)
		all.Go(func() { _, _ = r.Get(t.Context(), fetch) })
		synctest.Wait()
		if _, err := r.Get(gone, fetch); !errors.Is(err, context.Canceled) {
			t.Errorf("Get with a cancelled context: got %v, want context.Canceled", err)
		}
		all.Wait()
	})
}
