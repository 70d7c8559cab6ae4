package topology_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/topology"
	"github.com/reprisemq/reprise/topology/preset"
)

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

// An exchange that does not route by the key, or is not known, may lead anywhere.
func TestReachDoesNotGuess(t *testing.T) {
	topo := topology.Topology{
		Exchanges: []topology.Exchange{
			{Name: "plain", Kind: topology.Direct},
			{Name: "odd", Kind: "x-consistent-hash"},
			{Name: "lost", Kind: topology.Fanout, Args: topology.Table{"alternate-exchange": "elsewhere"}},
		},
		Bindings: []topology.Binding{
			{Exchange: "plain", Queue: "work", RoutingKey: "k"},
			{Exchange: "plain", Queue: "work", RoutingKey: "odd"},
			{Exchange: "plain", ToExchange: "odd", RoutingKey: "odd"},
		},
	}
	for _, tc := range []struct{ exchange, key, want string }{
		{"plain", "odd", `exchange "odd" is of kind x-consistent-hash, which does not route by the key alone`},
		{"amq.headers", "k", `exchange "amq.headers" is of kind headers, which does not route by the key alone`},
		{"unknown", "k", `exchange "unknown" is not known`},
		{"lost", "k", `exchange "elsewhere" is not known`},
	} {
		if queues, err := topo.Reach(tc.exchange, tc.key); err == nil || err.Error() != tc.want {
			t.Errorf("%s: %q, %v", tc.exchange, queues, err)
		}
	}
	if queues, err := topo.Reach("plain", "k"); err != nil || !slices.Equal(queues, []string{"work"}) {
		t.Errorf("%q, %v", queues, err)
	}
}

func TestReturnIsWhereRetriesComeBackThrough(t *testing.T) {
	got := map[string]string{}
	for name, s := range map[string]topology.Strategy{
		"default": {}, "cover art": preset.CoverArt{}.Strategy(), "staking": preset.Staking{}.Strategy(),
		"work/retry": preset.WorkRetry{Prefix: "p."}.Strategy(), "cdn": preset.CDNPurge{Exchange: "primary-exchange"}.Strategy(),
	} {
		if exchange, ok := s.Return(); ok {
			got[name] = exchange
		}
	}
	want := map[string]string{"cover art": "cover-art-archive", "work/retry": "p.WorkExchange", "cdn": "primary-exchange"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
