package presettest

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

func TestWorkRetryTopology(t *testing.T) {
	want := topology.Topology{
		Exchanges: []topology.Exchange{
			{Name: "WorkExchange", Kind: "direct"},
			{Name: "RetryExchange", Kind: "direct"},
		},
		Queues: []topology.Queue{
			{Name: "WorkQueue", Args: topology.Table{"x-dead-letter-exchange": "RetryExchange"}},
			{Name: "RetryQueue", Args: topology.Table{"x-dead-letter-exchange": "WorkExchange", "x-message-ttl": int64(300000)}},
			{Name: "WorkQueue.failed", Args: topology.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(2147483647)}},
		},
		Bindings: []topology.Binding{
			{Exchange: "WorkExchange", Queue: "WorkQueue", RoutingKey: ""},
			{Exchange: "RetryExchange", Queue: "RetryQueue", RoutingKey: ""},
			{Exchange: "WorkExchange", Queue: "WorkQueue", RoutingKey: "WorkQueue"},
			{Exchange: "RetryExchange", Queue: "RetryQueue", RoutingKey: "WorkQueue"},
		},
	}
	got := preset.WorkRetry{}.Topology()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("topology: -want +got:\n%s", diff)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
}

func TestWorkRetryVariants(t *testing.T) {
	got := preset.WorkRetry{
		RetryDelay: time.Minute, Kind: "fanout", TransientExchanges: true, QueueType: "quorum", Prefix: "eu.",
	}.Topology()
	want := topology.Topology{
		Exchanges: []topology.Exchange{
			{Name: "eu.WorkExchange", Kind: "fanout", Transient: true},
			{Name: "eu.RetryExchange", Kind: "fanout", Transient: true},
		},
		Queues: []topology.Queue{
			{Name: "eu.WorkQueue", Args: topology.Table{
				"x-dead-letter-exchange": "eu.RetryExchange",
				"x-queue-type":           "quorum", "x-delivery-limit": int64(math.MaxInt32),
				"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
			}},
			{Name: "eu.RetryQueue", Args: topology.Table{
				"x-dead-letter-exchange": "eu.WorkExchange", "x-message-ttl": int64(60000),
				"x-queue-type": "quorum", "x-delivery-limit": int64(math.MaxInt32),
				"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
			}},
			{Name: "eu.WorkQueue.failed", Args: topology.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(math.MaxInt32)}},
		},
		Bindings: []topology.Binding{
			{Exchange: "eu.WorkExchange", Queue: "eu.WorkQueue"},
			{Exchange: "eu.RetryExchange", Queue: "eu.RetryQueue"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("topology: -want +got:\n%s", diff)
	}

	var keys []string
	for _, b := range (preset.WorkRetry{Kind: "topic", Key: "#"}).Topology().Bindings {
		keys = append(keys, b.Exchange+" "+b.RoutingKey)
	}
	if diff := cmp.Diff([]string{"WorkExchange #", "RetryExchange #", "WorkExchange WorkQueue", "RetryExchange WorkQueue"}, keys); diff != "" {
		t.Errorf("bindings: -want +got:\n%s", diff)
	}
}

func TestWorkRetryStrategy(t *testing.T) {
	s := preset.WorkRetry{}.Strategy()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := s.ValidateQueue("WorkQueue"); err != nil {
		t.Error(err)
	}
	if err := s.ValidateQueue("RetryQueue"); err == nil {
		t.Error("ValidateQueue accepted RetryQueue, which is a wait queue")
	}
	d := topology.Delivery{
		Queue: "WorkQueue", Exchange: "WorkExchange",
		Headers: topology.Table{"x-death": []any{
			topology.Table{"queue": "RetryQueue", "reason": "expired", "count": int64(3)},
			topology.Table{
				"queue": "WorkQueue", "reason": "rejected", "count": int64(3), "exchange": "WorkExchange", "routing-keys": []any{""},
				"time": time.Unix(1000, 0),
			},
		}},
	}
	hop, err := s.Route.Wait(d, time.Second)
	if want := (topology.Hop{Way: topology.DeadLetter, Delay: 5 * time.Minute}); err != nil || !cmp.Equal(hop, want) {
		t.Errorf("Wait: got %+v, %v; want %+v", hop, err, want)
	}
	if hop := s.Route.Failed(d); hop.Exchange != "" || hop.RoutingKey != "WorkQueue.failed" {
		t.Errorf("Failed: got %+v, want the queue WorkQueue.failed", hop)
	}
	if h := s.Marks.Read(d); h.Attempts != 3 || !h.FirstFailed.Equal(time.Unix(1000, 0)) {
		t.Errorf("Read: got %+v, want 3 attempts, first failed at 1000 s", h)
	}
}

func TestWorkRetryValidate(t *testing.T) {
	for _, p := range []preset.WorkRetry{
		{},
		{RetryDelay: time.Second, Kind: "fanout", QueueType: "classic"},
		{Kind: "topic", Key: "#"},
		{Key: "WorkQueue"},
		{QueueType: "quorum", TransientExchanges: true, Prefix: "orders."},
	} {
		if err := p.Validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
		if err := p.Strategy().ValidateQueue(p.Queue()); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, tc := range []struct {
		p    preset.WorkRetry
		want string
	}{
		{preset.WorkRetry{RetryDelay: -1}, "0 means 5m0s"},
		{preset.WorkRetry{RetryDelay: time.Microsecond}, "must be whole milliseconds"},
		{preset.WorkRetry{RetryDelay: topology.MaxDelay + time.Millisecond}, "to 1193h2m47.295s"},
		{preset.WorkRetry{Kind: "headers"}, `"direct", "fanout" or "topic"`},
		{preset.WorkRetry{QueueType: "stream"}, `must be "quorum" or "classic"`},
		{preset.WorkRetry{Key: strings.Repeat("k", 256)}, "at most 255 bytes"},
		{preset.WorkRetry{Prefix: strings.Repeat("p", 250)}, "at most 239 bytes"},
	} {
		if err := tc.p.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%.60v…: got %v, want an error with %s", tc.p, err, tc.want)
		}
	}
}

// The broker counts the attempts of this design. A worker does not write a count.
func TestWorkRetryMarks(t *testing.T) {
	s := preset.WorkRetry{}.Strategy()
	s.Marks = nil
	if marks := s.WithDefaults().Marks; marks != (topology.Deaths{}) {
		t.Errorf("default marks: got %T, want topology.Deaths", marks)
	}
	s.Marks = topology.Trail{}
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "Marks must be topology.Deaths") {
		t.Errorf("different marks: got error %v, want Marks must be topology.Deaths", err)
	}
}
