package topology_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/topologytest"
	"github.com/reprisemq/reprise/topology"
)

// returningThrough returns a route whose copies return through the exchange "orders", which has the given kind.
func returningThrough(kind string, bindings ...topology.Binding) topology.WaitQueue {
	return topology.WaitQueue{
		WorkExchange: "orders", WaitExchange: "orders.wait", FailedExchange: "orders.failed", Delay: time.Minute,
		Infrastructure: topology.Topology{
			Exchanges: []topology.Exchange{
				{Name: "orders", Kind: kind}, {Name: "orders.wait", Kind: topology.Fanout}, {Name: "orders.failed", Kind: topology.Fanout},
			},
			Bindings: bindings,
		},
	}
}

func bound(keys ...string) (all []topology.Binding) {
	for _, key := range keys {
		all = append(all, topology.Binding{Exchange: "orders", Queue: "work", RoutingKey: key})
	}
	return all
}

func TestCopyReturnsWithRoutableKey(t *testing.T) {
	for _, tc := range []struct {
		name     string
		route    topology.WaitQueue
		own, key string
	}{
		{"direct, key of the message", returningThrough(topology.Direct, bound("paid", "sent")...), "sent", "sent"},
		{"direct, queue name", returningThrough(topology.Direct, bound("paid", "sent")...), "work", "paid"},
		{"topic, key of the message", returningThrough(topology.Topic, bound("order.*")...), "order.new", "order.new"},
		{"topic, queue name", returningThrough(topology.Topic, bound("order.*")...), "work", "order.*"},
		{"fanout", returningThrough(topology.Fanout, bound("")...), "work", "work"},
		{"headers", returningThrough(topology.Headers, bound("")...), "work", "work"},
		{"plugin", returningThrough("x-consistent-hash", bound("10")...), "customer", "customer"},
	} {
		if key := topologytest.ReturnKey(t, tc.route, tc.own); key != tc.key {
			t.Errorf("%s: got key %q, want %q", tc.name, key, tc.key)
		}
	}
	// The broker predeclares some exchanges.
	for exchange, want := range map[string]string{"amq.topic": "order.new", "amq.direct": "order.*", "amq.fanout": "order.new"} {
		w := returningThrough(topology.Direct, topology.Binding{Exchange: exchange, Queue: "work", RoutingKey: "order.*"})
		w.WorkExchange = exchange
		if key := topologytest.ReturnKey(t, w, "order.new"); key != want {
			t.Errorf("%s: got key %q, want %q", exchange, key, want)
		}
	}
}

// Clients can choose any keys and patterns, so no match may be slow.
func TestTopicMatchIsFast(t *testing.T) {
	pattern := strings.Repeat("#.a.", 60) + "b"
	key := strings.Repeat("a.", 120) + "c"
	if back := topologytest.ReturnKey(t, returningThrough(topology.Topic, bound(pattern)...), key); back != pattern {
		t.Errorf("got key %q, want %q", back, pattern)
	}
}

// Without a return path, the broker would silently drop every retry.
func TestValidateQueueRequiresReturnPath(t *testing.T) {
	nowhere := returningThrough(topology.Topic, topology.Binding{Exchange: "orders", Queue: "other", RoutingKey: "#"}).Infrastructure
	for _, r := range []topology.Route{
		topology.WaitQueue{WorkExchange: "orders", WaitExchange: "orders.wait", FailedExchange: "orders.failed", Infrastructure: nowhere},
		topology.MessageTTL{WaitAddress: topology.Address{Exchange: "orders.wait", Key: "{key}"}, WorkExchange: "orders", Infrastructure: nowhere},
		topology.DeadLettering{FailedAddress: topology.Address{Exchange: "orders.failed", Key: "{key}"}, WorkExchange: "orders", Infrastructure: nowhere},
	} {
		s := topology.Strategy{Route: r}
		want := fmt.Sprintf(`topology: %T.Infrastructure must bind exchange "orders" to work queue "work", or its retries would be lost (add the binding that publishers use)`, r)
		if err := s.ValidateQueue("work"); err == nil || err.Error() != strings.Replace(want, "topology.", "", 1) {
			t.Errorf("%T: queue without a return path: got %v, want %s", r, err, strings.Replace(want, "topology.", "", 1))
		}
		if err := s.ValidateQueue("other"); err != nil {
			t.Errorf("%T: queue with a return path: got %v, want no error", r, err)
		}
	}
	byName := topology.MessageTTL{WaitAddress: topology.Address{Exchange: "orders.wait", Key: "{key}"}, Infrastructure: nowhere}
	if err := byName.ValidateQueue("work"); err != nil {
		t.Errorf("return through the default exchange: got %v, want no error", err)
	}
	if err := (topology.MessageTTL{WorkExchange: "orders"}).ValidateQueue("work"); err != nil {
		t.Errorf("derived wait queue: got %v, want no error", err)
	}
}
