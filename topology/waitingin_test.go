package topology_test

import (
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

func TestStrategyWaitingIn(t *testing.T) {
	for name, test := range map[string]struct {
		s    topology.Strategy
		d    topology.Delivery
		want string
	}{
		"default":       {topology.Strategy{}, topology.Delivery{Queue: "orders"}, "orders.wait.3078660-3848325"},
		"levels":        {topology.Strategy{Route: topology.Levels{}}, topology.Delivery{Queue: "orders"}, ""},
		"requeued":      {topology.Strategy{Route: topology.Requeuing{}}, topology.Delivery{Queue: "orders"}, ""},
		"delayed retry": {topology.Strategy{Route: topology.DelayedRetry{}}, topology.Delivery{Queue: "orders"}, "orders"},
		"cover art":     {(preset.CoverArt{}).Strategy(), topology.Delivery{Queue: "cover-art-archive.index", RoutingKey: "index"}, "cover-art-archive.retry"},
		"staking":       {(preset.Staking{}).Strategy(), topology.Delivery{Queue: "active_staking_queue", RoutingKey: "active_staking_queue"}, "active_staking_queue_delay"},
		"work/retry":    {(preset.WorkRetry{}).Strategy(), topology.Delivery{Queue: "WorkQueue"}, "RetryQueue"},
		"CDN":           {(preset.CDNPurge{}).Strategy(), topology.Delivery{Queue: "cdn-purge", RoutingKey: "url"}, "cdn-purge.wait"},
	} {
		hop, err := test.s.WithDefaults().Route.Wait(test.d, time.Hour)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := test.s.WaitingIn(test.d, hop); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
