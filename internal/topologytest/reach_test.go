package topologytest

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// If an exchange is unknown or does not route by the key, Reach cannot determine the queues.
func TestReachReturnsErrorForUnknownRouting(t *testing.T) {
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
		{"plain", "odd", `exchange “odd” is of kind x-consistent-hash, which does not route by the key alone`},
		{"amq.headers", "k", `exchange “amq.headers” is of kind headers, which does not route by the key alone`},
		{"unknown", "k", `exchange “unknown” not found`},
		{"lost", "k", `exchange “elsewhere” not found`},
	} {
		if queues, err := topo.Reach(tc.exchange, tc.key); err == nil || err.Error() != tc.want {
			t.Errorf("exchange %s, key %s: got %q, %v, want error %s", tc.exchange, tc.key, queues, err, tc.want)
		}
	}
	if queues, err := topo.Reach("plain", "k"); err != nil || !slices.Equal(queues, []string{"work"}) {
		t.Errorf("exchange plain, key k: got %q, %v, want [work]", queues, err)
	}
}

func TestReturnOfRetries(t *testing.T) {
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
