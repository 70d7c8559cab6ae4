package route_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/topology"
)

// oracle routes as a broker with the infrastructure does. Queues are their names.
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
	return slices.Contains(o.table.Route(nil, o.table.Exchange("orders"), key, nil), "work")
}

func someKey() *rapid.Generator[string] {
	return rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "*", "#", ""}), 0, 6), func(words []string) string {
		return strings.Join(words, ".")
	})
}

// A copy whose key leads nowhere is dropped when it expires, without a word. So
// whatever the key, the copy's leads back; and it is the message's own where that
// does.
func TestCopiesReturnThroughTopicExchanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		patterns := rapid.SliceOfN(someKey(), 1, 4).Draw(t, "patterns")
		own := someKey().Draw(t, "own")
		w := behind(topology.Topic, bound(patterns...)...)
		o := newOracle(w.Infrastructure)
		back := returning(t, w, own)
		switch {
		case !o.reaches(back):
			t.Fatalf("%q returns as %q, which is bound nowhere", own, back)
		case o.reaches(own) && back != own:
			t.Fatalf("%q returns as %q", own, back)
		}
	})
}

// The same for exchanges bound to each other, and such that take what others do
// not: as long as one of the binding's keys leads all the way, or the message's.
func TestCopiesReturnThroughSeveralExchanges(t *testing.T) {
	names := []string{"orders", "x", "y", "z"}
	rapid.Check(t, func(t *rapid.T) {
		var topo topology.Topology
		for _, name := range names {
			x := topology.Exchange{Name: name, Kind: rapid.SampledFrom([]string{topology.Direct, topology.Topic, topology.Fanout}).Draw(t, "kind")}
			if rapid.Bool().Draw(t, "has an alternate") {
				x.Args = topology.Table{"alternate-exchange": rapid.SampledFrom(names).Draw(t, "alternate")}
			}
			topo.Exchanges = append(topo.Exchanges, x)
		}
		own := someKey().Draw(t, "own")
		keys := []string{own}
		for range rapid.IntRange(0, 8).Draw(t, "bindings") {
			b := topology.Binding{Exchange: rapid.SampledFrom(names).Draw(t, "from"), RoutingKey: someKey().Draw(t, "key")}
			switch to := rapid.SampledFrom(append(names, "work", "other")).Draw(t, "to"); {
			case slices.Contains(names, to):
				b.ToExchange = to
			default:
				b.Queue = to
			}
			topo.Bindings = append(topo.Bindings, b)
			keys = append(keys, b.RoutingKey)
		}
		w := topology.WaitQueue{WorkExchange: "orders", WaitExchange: "wait", FailedExchange: "failed", Infrastructure: topo}
		o := newOracle(topo)
		if !slices.ContainsFunc(keys, o.reaches) {
			return
		}
		switch back := returning(t, w, own); {
		case !o.reaches(back):
			t.Fatalf("%q returns as %q, which does not lead to the queue", own, back)
		case o.reaches(own) && back != own:
			t.Fatalf("%q returns as %q", own, back)
		}
	})
}

// Reach names the queues that a broker routes to, whatever exchanges are bound to each other.
func TestReachIsWhatABrokerDoes(t *testing.T) {
	names := []string{"orders", "x", "y", "z"}
	rapid.Check(t, func(t *rapid.T) {
		var topo topology.Topology
		for _, name := range names {
			x := topology.Exchange{Name: name, Kind: rapid.SampledFrom([]string{topology.Direct, topology.Topic, topology.Fanout}).Draw(t, "kind")}
			if rapid.Bool().Draw(t, "has an alternate") {
				x.Args = topology.Table{"alternate-exchange": rapid.SampledFrom(names).Draw(t, "alternate")}
			}
			topo.Exchanges = append(topo.Exchanges, x)
		}
		for range rapid.IntRange(0, 8).Draw(t, "bindings") {
			b := topology.Binding{Exchange: rapid.SampledFrom(names).Draw(t, "from"), RoutingKey: someKey().Draw(t, "key")}
			switch to := rapid.SampledFrom(append(names, "work", "other", "third")).Draw(t, "to"); {
			case slices.Contains(names, to):
				b.ToExchange = to
			default:
				b.Queue = to
			}
			topo.Bindings = append(topo.Bindings, b)
		}
		key := someKey().Draw(t, "published with")
		o := newOracle(topo)
		want := o.table.Route(nil, o.table.Exchange("orders"), key, nil)
		got, err := topo.Reach("orders", key)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(slices.Compact(want), got) {
			t.Fatalf("%q reaches %q, and the broker routes it to %q", key, got, want)
		}
	})
}

// behind is a route whose copies return to the queue "work" through the exchange
// "orders" of the given kind.
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

// returning is the key of a copy of a message that was delivered from "work".
func returning(t interface{ Fatal(...any) }, w topology.WaitQueue, key string) string {
	if err := (topology.Strategy{Route: w}).ValidateQueue("work"); err != nil {
		t.Fatal(err)
	}
	d := topology.Delivery{Queue: "work", RoutingKey: key}
	hop, err := w.Wait(d, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if parked := w.Failed(d); parked.RoutingKey != hop.RoutingKey {
		t.Fatal("parked with", parked.RoutingKey, "and retried with", hop.RoutingKey)
	}
	return hop.RoutingKey
}
