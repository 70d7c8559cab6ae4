package topology_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/topologytest"
	"github.com/reprisemq/reprise/topology"
)

// behind returns a route whose copies return to the queue "work" through the exchange "orders" of the
// given kind.
func behind(kind string, bindings ...topology.Binding) topology.WaitQueue {
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

func TestKeysOfCopiesThatReturn(t *testing.T) {
	for _, tc := range []struct {
		name     string
		route    topology.WaitQueue
		own, key string
	}{
		{"direct, its own", behind(topology.Direct, bound("paid", "sent")...), "sent", "sent"},
		{"direct, by name", behind(topology.Direct, bound("paid", "sent")...), "work", "paid"},
		{"topic, its own", behind(topology.Topic, bound("order.*")...), "order.new", "order.new"},
		{"topic, by name", behind(topology.Topic, bound("order.*")...), "work", "order.*"},
		{"fanout", behind(topology.Fanout, bound("")...), "work", "work"},
		{"headers", behind(topology.Headers, bound("")...), "work", "work"},
		{"a plugin's", behind("x-consistent-hash", bound("10")...), "customer", "customer"},
	} {
		if key := topologytest.ReturnKey(t, tc.route, tc.own); key != tc.key {
			t.Errorf("%s: %q", tc.name, key)
		}
	}
	// The broker has its own exchanges without a declaration.
	for exchange, want := range map[string]string{"amq.topic": "order.new", "amq.direct": "order.*", "amq.fanout": "order.new"} {
		w := behind(topology.Direct, topology.Binding{Exchange: exchange, Queue: "work", RoutingKey: "order.*"})
		w.WorkExchange = exchange
		if key := topologytest.ReturnKey(t, w, "order.new"); key != want {
			t.Errorf("%s: %q", exchange, key)
		}
	}
}

// Any publisher can choose key and pattern, so neither must make the match slow.
func TestLongTopicKeysAreMatchedAtOnce(t *testing.T) {
	pattern := strings.Repeat("#.a.", 60) + "b"
	key := strings.Repeat("a.", 120) + "c"
	if back := topologytest.ReturnKey(t, behind(topology.Topic, bound(pattern)...), key); back != pattern {
		t.Errorf("returns as %q", back)
	}
}

// Without a way back, the broker would silently drop every retry.
func TestRoutesWithoutAWayBackAreRefused(t *testing.T) {
	nowhere := behind(topology.Topic, topology.Binding{Exchange: "orders", Queue: "other", RoutingKey: "#"}).Infrastructure
	for _, r := range []topology.Route{
		topology.WaitQueue{WorkExchange: "orders", WaitExchange: "orders.wait", FailedExchange: "orders.failed", Infrastructure: nowhere},
		topology.MessageTTL{WaitAddress: topology.Address{Exchange: "orders.wait", Key: "{key}"}, WorkExchange: "orders", Infrastructure: nowhere},
		topology.DeadLettering{FailedAddress: topology.Address{Exchange: "orders.failed", Key: "{key}"}, WorkExchange: "orders", Infrastructure: nowhere},
	} {
		s := topology.Strategy{Route: r}
		want := fmt.Sprintf(`topology: %T.Infrastructure must bind exchange "orders" to work queue "work", or its retries would be lost (add the binding that publishers use)`, r)
		if err := s.ValidateQueue("work"); err == nil || err.Error() != strings.Replace(want, "topology.", "", 1) {
			t.Errorf("%T: %v", r, err)
		}
		if err := s.ValidateQueue("other"); err != nil {
			t.Errorf("%T: %v", r, err)
		}
	}
	byName := topology.MessageTTL{WaitAddress: topology.Address{Exchange: "orders.wait", Key: "{key}"}, Infrastructure: nowhere}
	if err := byName.ValidateQueue("work"); err != nil {
		t.Errorf("the default exchange knows every queue: %v", err)
	}
	if err := (topology.MessageTTL{WorkExchange: "orders"}).ValidateQueue("work"); err != nil {
		t.Errorf("its own wait queue returns by name: %v", err)
	}
}
