package announce

import (
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/protocol"
)

func TestTallyCountsAttempts(t *testing.T) {
	var tally Tally
	for _, d := range []time.Duration{0, time.Millisecond, time.Hour} {
		tally.Took(d)
		tally.Succeeded.Add(1)
	}
	h := tally.histogram()
	if h.Count() != 3 || h.Buckets[protocol.TookBuckets-1] != 1 || h.SumMS != 3_600_001 || tally.counts() != (protocol.Counts{Succeeded: 3}) {
		t.Errorf("got histogram %+v and counts %+v, want 3 attempts in 3600001 ms, one in the last bucket", h, tally.counts())
	}
}

// BenchmarkTally measures the additional cost of an announced worker per message.
func BenchmarkTally(b *testing.B) {
	var tally Tally
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			tally.Took(3 * time.Millisecond)
			tally.Succeeded.Add(1)
		}
	})
}
