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

// GrowingTTL is the MessageTTL of systems in which the delay grows with each copy
// from the one before, as the broker has recorded it: the first copy waits First,
// every other one Factor times what x-death says of the last, with a little
// randomness. See Expirations, which are its Marks.
//
//	work queue ─► handler ─► error: copy, expiration 10000 ─► wait queue ─ expires ─► work queue
//	                                │                                          │
//	                                └── next time 30000 ◄── x-death: original-expiration 10000
//
// How far the back-off has come is recorded on the message. So any number of programs,
// in any language, go on where another one left it. The delay that a Policy or a
// handler asks for is not used; how many attempts there are is the Policy's to say.
//
// What is said of MessageTTL holds here, too: a message waits behind those that came
// before it into the wait queue and are due later. With growing delays, that is the
// rule. A Max bounds it.
type GrowingTTL struct {
	// MessageTTL is where copies wait, and how they come back.
	MessageTTL

	// WaitQueue is the queue that the WaitAddress leads to, by which x-death knows
	// it. {queue} stands for the work queue. Default: the key of a WaitAddress
	// without an exchange, which is a queue's name; behind an exchange, the queue
	// has to be named.
	WaitQueue string

	First  time.Duration // what the first copy waits, whole milliseconds; default 10 s
	Factor float64       // how many times longer each next copy waits, from 1 (always the same) to 1000; default 3
	Max    time.Duration // the longest that any copy waits; default 12 h, or First where that is longer; at most MaxDelay

	// Jitter is the part by which a delay is shortened or lengthened at random, but
	// for the first: 0.1 is up to a tenth, either way. Default 0.1; negative for
	// none.
	Jitter float64

	// Rand returns a number in [0, 1), and must be safe for concurrent use.
	// Default: math/rand/v2.Float64.
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

// Validate reports what MessageTTL and Expirations do, and a Max, a Jitter or a
// WaitQueue that cannot be.
func (g GrowingTTL) Validate() error {
	named := g.WaitQueue != "" || g.WaitAddress.Exchange == ""
	g = g.withDefaults()
	errs := []error{g.MessageTTL.Validate(), g.expirations().Validate()}
	if !named {
		errs = append(errs, errors.New("topology: GrowingTTL.WaitQueue is empty: name the queue that the WaitAddress leads to, since x-death goes by its name"))
	}
	errs = append(errs, validateDelay("GrowingTTL.Max", g.Max, g.First, fmt.Sprintf("First (%s)", g.First), DefaultGrowingTTLMax))
	if !(g.Jitter < 1) { // written so that NaN fails too
		errs = append(errs, fmt.Errorf("topology: GrowingTTL.Jitter %v: use a part of the delay such as 0.1, less than 1, 0 for %v, or a negative number for none", g.Jitter, DefaultGrowingTTLJitter))
	}
	return errors.Join(errs...)
}

// Marks returns Expirations.
func (g GrowingTTL) Marks() Marks { return g.withDefaults().expirations() }

// Wait returns the hop into the wait queue. Its delay is the message's own, and
// not the one that is asked for.
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
