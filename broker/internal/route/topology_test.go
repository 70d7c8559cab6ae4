package route_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/internal/topologytest"
	"github.com/reprisemq/reprise/topology"
)

// oracle routes messages like a broker with the given topology. Queues are identified by their names.
type oracle struct{ table *route.Table[string] }

func newOracle(t topology.Topology) oracle {
	o := oracle{route.NewTable[string]()}
	for _, x := range t.Exchanges {
		alternate, _ := x.Args["alternate-exchange"].(string)
		o.table.Add(route.Exchange[string]{Name: x.Name, Kind: route.Kind(x.Kind), Durable: true, Alternate: alternate})
	}
	for _, b := range t.Bindings {
		to := route.Destination[string]{Queue: b.Queue, Exchange: o.table.Exchange(b.ToExchange)}
		o.table.Bind(o.table.Exchange(b.Exchange), route.Binding[string]{Destination: to, Key: b.RoutingKey})
	}
	return o
}

func (o oracle) reaches(key string) bool {
	return slices.Contains(o.table.Route(nil, o.table.Exchange("orders"), route.Message{Key: key}), "work")
}

func someKey() *rapid.Generator[string] {
	return rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*", "#", ""}), 0, 6), func(words []string) string {
		return strings.Join(words, ".")
	})
}

// names contains the names of the exchanges that someTopology returns.
var names = []string{"orders", "x", "y", "z"}

// someTopology returns a random topology. It contains exchanges, some with an alternate exchange, and bindings from
// them to exchanges and queues.
func someTopology(t *rapid.T, queues ...string) (topo topology.Topology) {
	for _, name := range names {
		x := topology.Exchange{Name: name, Kind: rapid.SampledFrom([]string{topology.Direct, topology.Topic, topology.Fanout}).Draw(t, "kind")}
		if rapid.Bool().Draw(t, "has an alternate") {
			x.Args = topology.Table{"alternate-exchange": rapid.SampledFrom(names).Draw(t, "alternate")}
		}
		topo.Exchanges = append(topo.Exchanges, x)
	}
	for range rapid.IntRange(0, 8).Draw(t, "bindings") {
		b := topology.Binding{Exchange: rapid.SampledFrom(names).Draw(t, "from"), RoutingKey: someKey().Draw(t, "key")}
		if to := rapid.SampledFrom(slices.Concat(names, queues)).Draw(t, "to"); slices.Contains(names, to) {
			b.ToExchange = to
		} else {
			b.Queue = to
		}
		topo.Bindings = append(topo.Bindings, b)
	}
	return topo
}

// checkReturn fails the test unless the key of a copy routes back to the queue. If the message's own key routes back,
// the copy must have this key.
func checkReturn(t *rapid.T, topo topology.Topology, own string) {
	w := topology.WaitQueue{WorkExchange: "orders", WaitExchange: "wait", FailedExchange: "failed", Infrastructure: topo}
	o := newOracle(topo)
	switch back := topologytest.ReturnKey(t, w, own); {
	case !o.reaches(back):
		t.Fatalf("key %q: return key %q does not route to the queue", own, back)
	case o.reaches(own) && back != own:
		t.Fatalf("key %q: return key %q, want the same key", own, back)
	}
}

// If the routing key of an expired copy leads to no queue, the broker silently drops the copy. The key of the copy must
// therefore route back to the work queue. If the message's own key routes back, the copy must have this key.
func TestReturnKeyRoutesThroughTopicExchange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topo := topology.Topology{Exchanges: []topology.Exchange{{Name: "orders", Kind: topology.Topic}}}
		for _, pattern := range rapid.SliceOfN(someKey(), 1, 4).Draw(t, "patterns") {
			topo.Bindings = append(topo.Bindings, topology.Binding{Exchange: "orders", Queue: "work", RoutingKey: pattern})
		}
		checkReturn(t, topo, someKey().Draw(t, "own"))
	})
}

// The key of a copy also routes back through bound exchanges and alternate exchanges, if any binding key or the
// message's own key routes to the queue.
func TestReturnKeyRoutesThroughSeveralExchanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topo, own := someTopology(t, "work", "other"), someKey().Draw(t, "own")
		o := newOracle(topo)
		leads := slices.ContainsFunc(topo.Bindings, func(b topology.Binding) bool { return o.reaches(b.RoutingKey) })
		if leads || o.reaches(own) {
			checkReturn(t, topo, own)
		}
	})
}

// Reach returns the queues to which a broker routes a key, including queues that are bound through other exchanges.
func TestReachMatchesBrokerRouting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topo, key := someTopology(t, "work", "other", "third"), someKey().Draw(t, "published with")
		o := newOracle(topo)
		want := o.table.Route(nil, o.table.Exchange("orders"), route.Message{Key: key})
		got, err := topo.Reach("orders", key)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(slices.Compact(want), got) {
			t.Fatalf("key %q: Reach returned %q, but the broker routes to %q", key, got, want)
		}
	})
}
