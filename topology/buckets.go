package topology

import (
	"cmp"
	"fmt"
	"strconv"
	"time"
)

// Defaults of Buckets.
const (
	DefaultBucketsBase   = time.Second
	DefaultBucketsGrowth = 1.25
)

// maxGrowth is far beyond what is of use, and keeps the bounds within 64 bits.
const maxGrowth = 1000

// Buckets is the default Route: any delay up to MaxDelay, never early, late by
// at most the width of a bucket, on any RabbitMQ from 3.10 on. A longer delay
// is cut to MaxDelay: the message comes back then, and the handler can ask
// again.
//
// RabbitMQ expires messages only at the head of a queue, so a short delay
// behind a long one waits for the long one. One queue per distinct delay would
// avoid that, and explode under jitter. Buckets bound it: the delays that share
// a queue differ by at most the factor Growth.
//
//	bucket 0     [0, Base)                        orders.wait.0-1000
//	bucket i     [Base×Growthⁱ⁻¹, Base×Growthⁱ)   orders.wait.1000-1250, orders.wait.1250-1562, …
//
// For a delay d in bucket i, with the bounds rounded down to milliseconds:
//
//   - the copy expires no earlier than d;
//   - it expires no later than the bucket's upper bound, as long as the broker
//     keeps up, so at most (upper - lower) late;
//   - from Base on, the upper bound is at most d×Growth.
//
// Each bucket is a queue, declared when first used: a copy is published to it
// by its name, and when it expires it is dead-lettered to the work queue by
// its name, so it returns to that queue and to no other. No work queue shares
// its wait queues with another: RabbitMQ stops dead-lettering from a queue
// while 32 of its dead letters are unconfirmed, so that a work queue which is
// full, or was deleted, would hold up the retries of all others. The bounds are
// in the name, so programs with different settings never collide. With the
// defaults, all delays from a second to a day need 51 buckets, and a program
// only creates those its delays fall into: seven with the default reprise.Policy.
type Buckets struct {
	Base   time.Duration // width of the first bucket; default 1 s, at least 1 ms
	Growth float64       // ratio of a bucket's bounds; default 1.25, more than 1
}

func (b Buckets) withDefaults() Buckets {
	b.Base = cmp.Or(b.Base, DefaultBucketsBase)
	b.Growth = cmp.Or(b.Growth, DefaultBucketsGrowth)
	return b
}

// Validate reports settings that make no buckets and what to write instead.
func (b Buckets) Validate() error {
	b = b.withDefaults()
	switch {
	case b.Base < time.Millisecond || b.Base%time.Millisecond != 0 || b.Base > MaxDelay:
		return fmt.Errorf("topology: Buckets.Base %s: use whole milliseconds, from 1ms to %s", b.Base, MaxDelay)
	case !(b.Growth > 1 && b.Growth <= maxGrowth): // written so that NaN fails too
		return fmt.Errorf("topology: Buckets.Growth %v: use more than 1 (the default 1.25 keeps retries at most 25%% late), and at most %d", b.Growth, maxGrowth)
	case float64(b.Base.Milliseconds())*(b.Growth-1) < 1:
		return fmt.Errorf("topology: Buckets.Growth %v makes buckets narrower than a millisecond: use at least %v with a Base of %s",
			b.Growth, 1+1/float64(b.Base.Milliseconds()), b.Base)
	}
	return nil
}

// ValidateQueue reports a work queue whose wait queues or failed queue would
// have names that no broker accepts.
func (b Buckets) ValidateQueue(queue string) error {
	if b.Validate() != nil {
		return nil // these are no buckets, as that says
	}
	return validateNames(queue, b.waitQueue(queue, MaxDelay), FailedQueue(queue))
}

// Bounds returns the bucket a delay falls into, rounded up to milliseconds: lower ≤
// delay < upper. A delay below 0 counts as 0, one beyond MaxDelay as MaxDelay, and
// Buckets that Validate refuses as the default.
func (b Buckets) Bounds(delay time.Duration) (lower, upper time.Duration) {
	if b.Validate() != nil {
		b = Buckets{}
	}
	b = b.withDefaults()
	ms := milliseconds(min(delay, MaxDelay))
	low, high := int64(0), b.Base.Milliseconds()
	for ms >= high {
		low, high = high, int64(float64(high)*b.Growth)
	}
	return time.Duration(low) * time.Millisecond, time.Duration(high) * time.Millisecond
}

// Topology returns the work queue, declared only if it does not exist, and its
// failed queue. The work queue dead-letters into the failed queue, so that
// even a message RabbitMQ itself gives up on (delivery limit) is parked and
// not dropped.
func (b Buckets) Topology(queue string) Topology { return workAndFailed(queue, FailedQueue(queue)) }

// waitQueue is the name of a work queue's wait queue for a delay.
func (b Buckets) waitQueue(queue string, delay time.Duration) string {
	lower, upper := b.Bounds(delay)
	name := append(make([]byte, 0, maxName), queue...) // on the stack
	name = append(name, ".wait."...)
	name = append(strconv.AppendInt(name, lower.Milliseconds(), 10), '-')
	return string(strconv.AppendInt(name, upper.Milliseconds(), 10))
}

// Wait returns the hop into the bucket of the delay, through the default
// exchange. A delay beyond MaxDelay counts as MaxDelay.
func (b Buckets) Wait(d Delivery, delay time.Duration) (Hop, error) {
	delay = time.Duration(milliseconds(min(delay, MaxDelay))) * time.Millisecond
	name := b.waitQueue(d.Queue, delay)
	return Hop{
		RoutingKey: name,
		TTL:        max(delay, time.Millisecond), // 0 would mean for ever
		Delay:      delay,
		Topology:   Topology{Queues: []Queue{waitQueue(name, "", d.Queue)}},
	}, nil
}

// Failed returns the hop into the failed queue of d.Queue, through the default
// exchange.
func (b Buckets) Failed(d Delivery) Hop { return failed(d.Queue) }
