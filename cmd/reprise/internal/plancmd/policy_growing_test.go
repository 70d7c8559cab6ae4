package plancmd

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// If each delay depends on the previous delay, all possible delays are within the displayed range.
func TestPlanIncludesGrowingDelays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		chance := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		design := preset.CDNPurge{
			First:  time.Duration(rapid.IntRange(1, 100_000).Draw(t, "first")) * time.Millisecond,
			Factor: rapid.Float64Range(1, 10).Draw(t, "factor"),
			Jitter: rapid.SampledFrom([]float64{-1, 0, 0.1, 0.5, 0.99}).Draw(t, "jitter"),
			Rand:   chance.Float64,
		}
		if rapid.Bool().Draw(t, "bounded") {
			design.Max = design.First * time.Duration(rapid.IntRange(1, 1000).Draw(t, "max"))
		}
		route := design.Strategy().Route
		s := subjectOf(reprise.WorkerConfig{
			Queue: preset.CDNPurgeQueue, Strategy: design.Strategy(),
			Policy: reprise.Policy{MaxAttempts: rapid.IntRange(1, 30).Draw(t, "attempts")},
		})
		d := topology.Delivery{Queue: preset.CDNPurgeQueue, RoutingKey: "url"}
		for attempt := 1; attempt < s.policy.MaxAttempts; attempt++ {
			hop, err := route.Wait(d, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if w := s.delay(attempt); hop.Delay < w.low || hop.Delay > w.high {
				t.Fatalf("delay %s after attempt %d is not within %+v", hop.Delay, attempt, w)
			}
			d.Headers = topology.Table{"x-death": []any{topology.Table{
				"queue": preset.CDNPurgeWaitQueue, "reason": "expired", "count": int64(1),
				"exchange": preset.CDNPurgeWaitExchange, "routing-keys": []any{"url"},
				"original-expiration": strconv.FormatInt(hop.TTL.Milliseconds(), 10),
			}}}
		}
	})
}
