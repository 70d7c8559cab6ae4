package topology

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Defaults of GrowingTTL.
const (
	DefaultGrowingTTLMax    = 12 * time.Hour
	DefaultGrowingTTLJitter = 0.1
)

// GrowingTTL is a MessageTTL whose delay grows with each copy, based on the expiration that the broker recorded in
// x-death. The first copy waits for First. Each further copy waits for Factor times the last recorded expiration, with a
// small jitter, up to Max. The Marks of GrowingTTL are Expirations.
//
//	work queue ─► handler ─► error: copy, expiration 10000 ─► wait queue ─ expires ─► work queue
//	                                │                                          │
//	                                └── next time 30000 ◄── x-death: original-expiration 10000
//
// The message itself carries the progress of the backoff. Any number of programs in any language can therefore continue the
// backoff of another program. GrowingTTL ignores the delays of Policy and handlers. The Policy still limits the number of
// attempts.
//
// As with MessageTTL, a message also waits for earlier messages in the wait queue that are due later. With growing delays,
// this happens often. Max limits the wait.
type GrowingTTL struct {
	// MessageTTL sets the wait queue and the return path.
	MessageTTL

	// WaitQueue is the name of the queue to which WaitAddress leads, as used in x-death. {queue} is replaced by the work
	// queue. If WaitAddress has an exchange, WaitQueue is required. Default: WaitAddress.Key, which names a queue if there
	// is no exchange.
	WaitQueue string

	First  time.Duration // expiration of the first copy in whole milliseconds; default 10 s
	Factor float64       // ratio of an expiration to the previous expiration, from 1 (constant) to 1000; default 3
	Max    time.Duration // longest expiration; default 12 h, or First if that is longer; at most MaxDelay

	// Jitter is the maximum random deviation of a delay, as a fraction of the delay: 0.1 changes a delay by up to a
	// tenth in either direction. The first delay has no jitter. Default: 0.1; a negative value disables jitter.
	Jitter float64

	// Rand returns a number in [0, 1). It must be safe for concurrent use. Default:
	// math/rand/v2.Float64.
	Rand func() float64
}

func (g GrowingTTL) withDefaults() GrowingTTL {
	g.MessageTTL = g.MessageTTL.withDefaults()
	g.WaitQueue = cmp.Or(g.WaitQueue, g.WaitAddress.Key)
	e := g.expirations().withDefaults()
	g.First, g.Factor = e.First, e.Factor
	g.Max = cmp.Or(g.Max, max(DefaultGrowingTTLMax, g.First))
	g.Jitter = cmp.Or(g.Jitter, DefaultGrowingTTLJitter)
	if g.Rand == nil {
		g.Rand = rand.Float64
	}
	return g
}

func (g GrowingTTL) expirations() Expirations {
	return Expirations{WaitQueue: g.WaitQueue, First: g.First, Factor: g.Factor}
}

// Validate reports invalid settings of MessageTTL and Expirations, and an invalid Max, Jitter or
// WaitQueue.
func (g GrowingTTL) Validate() error {
	named := g.WaitQueue != "" || g.WaitAddress.Exchange == ""
	g = g.withDefaults()
	errs := []error{g.MessageTTL.Validate(), g.expirations().Validate()}
	if !named {
		errs = append(errs, errors.New("topology: GrowingTTL.WaitQueue must not be empty (set the queue that WaitAddress leads to; x-death contains its name)"))
	}
	errs = append(errs, validateDelay("GrowingTTL.Max", g.Max, g.First, fmt.Sprintf("First (%s)", g.First), DefaultGrowingTTLMax))
	if !(g.Jitter < 1) { // this form also rejects NaN
		errs = append(errs, fmt.Errorf("topology: GrowingTTL.Jitter must be below 1: got %v (0 means %v, a negative number no jitter)", g.Jitter, DefaultGrowingTTLJitter))
	}
	return errors.Join(errs...)
}

// Marks returns Expirations.
func (g GrowingTTL) Marks() Marks { return g.withDefaults().expirations() }

// Wait returns the hop into the wait queue. The delay depends on the message and the jitter. Wait ignores the
// requested delay.
func (g GrowingTTL) Wait(d Delivery, _ time.Duration) (Hop, error) {
	g = g.withDefaults()
	e := g.expirations()
	w := e.last(d)
	delay := min(e.next(w), g.Max)
	if w.count > 0 && g.Jitter > 0 {
		delay = min(clampDelay(float64(delay)*(1+g.Jitter*(2*g.Rand()-1))), g.Max)
	}
	hop, err := g.MessageTTL.Wait(d, delay)
	hop.Headers = Table{HeaderWaits: hop.TTL.Milliseconds()}
	return hop, err
}
