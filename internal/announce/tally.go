package announce

import (
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/protocol"
)

// Tally counts the results of a worker. The zero value is ready for use.
type Tally struct {
	Succeeded, Failed, Retried, Parked atomic.Uint64

	buckets [protocol.TookBuckets]atomic.Uint64
	sum     atomic.Uint64 // microseconds
}

// Took counts an attempt of duration d.
func (t *Tally) Took(d time.Duration) {
	t.buckets[protocol.TookBucket(d)].Add(1)
	t.sum.Add(uint64(max(0, d).Microseconds()))
}

func (t *Tally) counts() protocol.Counts {
	return protocol.Counts{Succeeded: t.Succeeded.Load(), Failed: t.Failed.Load(), Retried: t.Retried.Load(), Parked: t.Parked.Load()}
}

func (t *Tally) histogram() (h protocol.Histogram) {
	for i := range t.buckets {
		h.Buckets[i] = t.buckets[i].Load()
	}
	h.SumMS = t.sum.Load() / 1000
	return h
}
