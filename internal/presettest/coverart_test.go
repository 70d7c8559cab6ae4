package presettest

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

func TestCoverArtTopology(t *testing.T) {
	want := topology.Topology{
		Exchanges: []topology.Exchange{
			{Name: "cover-art-archive", Kind: "direct"},
			{Name: "cover-art-archive.retry", Kind: "fanout"},
			{Name: "cover-art-archive.failed", Kind: "fanout"},
		},
		Queues: []topology.Queue{
			{Name: "cover-art-archive.index"},
			{Name: "cover-art-archive.delete"},
			{Name: "cover-art-archive.move"},
			{Name: "cover-art-archive.retry", Args: topology.Table{"x-message-ttl": int64(14400000), "x-dead-letter-exchange": "cover-art-archive"}},
			{Name: "cover-art-archive.failed"},
		},
		Bindings: []topology.Binding{
			{Exchange: "cover-art-archive", Queue: "cover-art-archive.index", RoutingKey: "index"},
			{Exchange: "cover-art-archive", Queue: "cover-art-archive.delete", RoutingKey: "delete"},
			{Exchange: "cover-art-archive", Queue: "cover-art-archive.move", RoutingKey: "move"},
			{Exchange: "cover-art-archive.retry", Queue: "cover-art-archive.retry"},
			{Exchange: "cover-art-archive.failed", Queue: "cover-art-archive.failed"},
		},
	}
	got := preset.CoverArt{}.Topology()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("topology: -want +got:\n%s", diff)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	for _, q := range (preset.CoverArt{QueueType: "classic"}).Topology().Queues {
		if _, limited := q.Args["x-delivery-limit"]; limited || q.Args["x-queue-type"] != "classic" {
			t.Errorf("queue %s: got arguments %v, want type classic without a delivery limit", q.Name, q.Args)
		}
	}
	for _, q := range (preset.CoverArt{QueueType: "quorum"}).Topology().Queues {
		if q.Args["x-queue-type"] != "quorum" || q.Args["x-delivery-limit"] != int64(math.MaxInt32) {
			t.Errorf("queue %s: got arguments %v, want type quorum and delivery limit %d", q.Name, q.Args, math.MaxInt32)
		}
	}
}

func TestCoverArtStrategy(t *testing.T) {
	s := preset.CoverArt{RetryDelay: time.Minute, Retries: 7}.Strategy()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	d := topology.Delivery{Queue: "cover-art-archive.index", Exchange: "cover-art-archive", RoutingKey: "index"}
	hop, err := s.Route.Wait(d, time.Hour)
	if err != nil || hop.Exchange != "cover-art-archive.retry" || hop.RoutingKey != "index" || hop.Delay != time.Minute || hop.TTL != 0 {
		t.Errorf("Wait: got %+v, %v; want 1m through cover-art-archive.retry with key index", hop, err)
	}
	if hop := s.Route.Failed(d); hop.Exchange != "cover-art-archive.failed" || hop.RoutingKey != "index" {
		t.Errorf("Failed: got %+v, want cover-art-archive.failed with key index", hop)
	}
	if h := s.Marks.Read(d); h.RetriesLeft != 7 {
		t.Errorf("RetriesLeft: got %d, want 7", h.RetriesLeft)
	}
}

func TestCoverArtValidate(t *testing.T) {
	for _, p := range []preset.CoverArt{{}, {RetryDelay: time.Second, Retries: 1, QueueType: "classic"}} {
		if err := p.Validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	for _, p := range []preset.CoverArt{{RetryDelay: -1}, {RetryDelay: time.Microsecond}, {Retries: -1}, {RetryDelay: topology.MaxDelay + time.Millisecond}, {QueueType: "stream"}} {
		if err := p.Validate(); err == nil {
			t.Errorf("Validate of %+v: got nil, want an error", p)
		}
	}
}
