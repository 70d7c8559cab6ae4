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

// maxGrowth is higher than any useful value, and low enough that the bounds fit into 64 bits.
const maxGrowth = 1000

// Buckets is the default Route. It supports any delay up to MaxDelay on RabbitMQ 3.10 and later. A retry is never early,
// and is late by at most the width of its bucket. Buckets shortens longer delays to MaxDelay. After that time, the
// handler can request a further delay.
//
// RabbitMQ expires messages only at the head of a queue, so a message with a short delay waits for an
// earlier message with a long delay. One queue for each distinct delay would avoid this, but jitter
// would create too many queues. With Buckets, delays of at least Base that share a queue differ by at most the factor
// Growth.
//
//	bucket 0     [0, Base)                        orders.wait.0-1000
//	bucket i     [Base×Growthⁱ⁻¹, Base×Growthⁱ)   orders.wait.1000-1250, orders.wait.1250-1562, …
//
// For a delay d in bucket i, with the bounds rounded down to milliseconds:
//
//   - the copy expires no earlier than d;
//   - it expires no later than the upper bound of the bucket if the broker
//     is not overloaded, so it is at most (upper - lower) late;
//   - if d is at least Base, the upper bound is at most d×Growth.
//
// Each bucket is a queue, which the worker declares on first use. The worker publishes a copy directly to the bucket,
// through the default exchange. When the copy expires, the broker dead-letters the copy directly to the work queue, so the
// copy does not reach other queues.
//
// Work queues do not share wait queues. RabbitMQ pauses at-least-once dead-lettering from a queue while 32 of its dead
// letters are unconfirmed, so in a shared wait queue, one work queue that is full or deleted would block the retries of
// the others. The name of a bucket contains its bounds, so programs with different settings do not collide.
//
// With the defaults, the delays from one second to one day need 51 buckets. A program creates only the
// buckets that its delays use: seven with the default reprise.Policy.
type Buckets struct {
	Base   time.Duration // width of the first bucket; default 1 s, at least 1 ms
	Growth float64       // ratio of a bucket's bounds; default 1.25, more than 1
}

func (b Buckets) withDefaults() Buckets {
	b.Base = cmp.Or(b.Base, DefaultBucketsBase)
	b.Growth = cmp.Or(b.Growth, DefaultBucketsGrowth)
	return b
}

// Validate reports invalid settings and explains how to fix them.
func (b Buckets) Validate() error {
	b = b.withDefaults()
	switch {
	case b.Base < time.Millisecond || b.Base%time.Millisecond != 0 || b.Base > MaxDelay:
		return fmt.Errorf("topology: Buckets.Base must be whole milliseconds from 1ms to %s: got %s", MaxDelay, b.Base)
	case !(b.Growth > 1 && b.Growth <= maxGrowth): // this form also rejects NaN
		return fmt.Errorf("topology: Buckets.Growth must be above 1 and at most %d: got %v (with the default 1.25, retries are at most 25%% late)", maxGrowth, b.Growth)
	case float64(b.Base.Milliseconds())*(b.Growth-1) < 1:
		return fmt.Errorf("topology: Buckets.Growth must be at least %v with a Base of %s: got %v (buckets must not be narrower than 1ms)", 1+1/float64(b.Base.Milliseconds()), b.Base, b.Growth)
	}
	return nil
}

// ValidateQueue reports a work queue whose wait queues or failed queue would
// have names that no broker accepts.
func (b Buckets) ValidateQueue(queue string) error {
	if b.Validate() != nil {
		return nil // Validate reports the invalid settings
	}
	return validateNames(queue, b.waitQueue(queue, MaxDelay), FailedQueue(queue))
}

// Bounds rounds the delay up to milliseconds and returns the bounds of its bucket: lower ≤ delay <
// upper. A negative delay counts as 0, and a delay beyond MaxDelay as MaxDelay. If Validate returns an
// error, Bounds uses the default settings.
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

// Topology returns the work queue, which is declared only if it does not exist, and its failed queue. The work queue
// dead-letters into the failed queue, so RabbitMQ does not drop a message that exceeds the delivery limit.
func (b Buckets) Topology(queue string) Topology { return workAndFailed(queue, FailedQueue(queue)) }

// waitQueue returns the name of the bucket for a delay.
func (b Buckets) waitQueue(queue string, delay time.Duration) string {
	lower, upper := b.Bounds(delay)
	name := append(make([]byte, 0, maxName), queue...) // the constant size avoids an allocation on the heap
	name = append(name, ".wait."...)
	name = append(strconv.AppendInt(name, lower.Milliseconds(), 10), '-')
	return string(strconv.AppendInt(name, upper.Milliseconds(), 10))
}

// Wait returns the hop through the default exchange into the bucket for the delay. A delay beyond MaxDelay counts as
// MaxDelay.
func (b Buckets) Wait(d Delivery, delay time.Duration) (Hop, error) {
	delay = time.Duration(milliseconds(min(delay, MaxDelay))) * time.Millisecond
	name := b.waitQueue(d.Queue, delay)
	return Hop{
		RoutingKey: name,
		TTL:        max(delay, time.Millisecond), // 0 would mean no expiration
		Delay:      delay,
		Topology:   Topology{Queues: []Queue{waitQueue(name, "", d.Queue)}},
	}, nil
}

// Failed returns the hop into the failed queue of d.Queue, through the default
// exchange.
func (b Buckets) Failed(d Delivery) Hop { return failed(d.Queue) }
