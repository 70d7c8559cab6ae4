package cli

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/topology"
)

// growingDelays are those of a route by which each delay follows from the one
// before. It follows two messages on their way, with what the broker notes on
// them: one for which chance makes each delay the shortest, and one for which it
// makes it the longest.
func growingDelays(r topology.GrowingTTL, fresh topology.Delivery, attempts int) func(attempt int) window {
	low, high := fortune(r, fresh, attempts, 0), fortune(r, fresh, attempts, math.Nextafter(1, 0))
	return func(attempt int) window { return window{low[attempt-1], high[attempt-1]} }
}

// fortune are the delays of a message that always has the same luck.
func fortune(r topology.GrowingTTL, d topology.Delivery, attempts int, chance float64) []time.Duration {
	r.Rand = func() float64 { return chance }
	delays := make([]time.Duration, attempts)
	for i := range delays {
		hop, err := r.Wait(d, 0)
		if err != nil {
			return delays // nothing is waited for: it is parked
		}
		delays[i] = hop.Delay
		d.Headers = topology.Table{"x-death": []any{topology.Table{
			"queue":               strings.ReplaceAll(cmp.Or(r.WaitQueue, "{queue}.wait"), "{queue}", d.Queue),
			"reason":              "expired",
			"count":               int64(1),
			"original-expiration": strconv.FormatInt(hop.TTL.Milliseconds(), 10),
		}}}
	}
	return delays
}

// aboutGrowing says how they grow.
func aboutGrowing(r topology.GrowingTTL) string {
	factor, jitter := cmp.Or(r.Factor, topology.DefaultExpirationsFactor), cmp.Or(r.Jitter, topology.DefaultGrowingTTLJitter)
	first := cmp.Or(r.First, topology.DefaultExpirationsFirst)
	about := fmt.Sprintf("exponential from %s ×%v up to %s", config.FormatDuration(first), factor,
		config.FormatDuration(cmp.Or(r.Max, max(topology.DefaultGrowingTTLMax, first))))
	if jitter > 0 {
		about += fmt.Sprintf(", ±%v%%", math.Round(1000*jitter)/10)
	}
	return about + ", each from the one before, as its x-death has it"
}
