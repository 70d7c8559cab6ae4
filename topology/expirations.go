package topology

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// HeaderWaits is what GrowingTTL writes on a copy beside its Trail, and Expirations
// read: how many milliseconds it is to wait (int64), which is its expiration.
const HeaderWaits = "x-reprise-waits"

// Defaults of Expirations and GrowingTTL.
const (
	DefaultExpirationsFirst  = 10 * time.Second
	DefaultExpirationsFactor = 3.0
)

// Expirations are the Marks of systems in which a message carries how far its
// back-off has come in nothing but the time it last waited: each copy is given an
// expiration that is Factor times the one before, and what that was, the broker
// has written into the header x-death, as original-expiration
// (https://www.rabbitmq.com/docs/dlx#effects).
//
// So an attempt that another program made counts, though that one counts nothing:
// a message that has waited First was tried once, one that has waited three times
// as long twice. Randomness is rounded away, as long as it is less than the root of
// Factor; where Factor is 1, an expiration tells nothing but that there was one.
// Beside that a Trail is written, and what its copy was given to wait, HeaderWaits:
// from there on, attempts are counted exactly, and only those of others since then
// are told from the expiration. Other programs may carry these headers along, or
// drop them.
//
// A program that copies all headers copies x-death as well. Since RabbitMQ 4.0 it is
// replaced when the copy expires. Before, the broker goes on counting there, and
// leaves original-expiration as it was at first: then count says how many waits there
// were. Anything in x-death that RabbitMQ would not write counts as absent.
type Expirations struct {
	// WaitQueue is the queue that copies expire from, by which x-death knows
	// them. {queue} stands for the work queue. Default {queue}.wait.
	WaitQueue string

	First  time.Duration // what the first copy waits, whole milliseconds; default 10 s
	Factor float64       // how many times longer each next copy waits, from 1 (always the same) to 1000; default 3
}

func (e Expirations) withDefaults() Expirations {
	e.WaitQueue = cmp.Or(e.WaitQueue, "{queue}.wait")
	e.First = cmp.Or(e.First, DefaultExpirationsFirst)
	e.Factor = cmp.Or(e.Factor, DefaultExpirationsFactor)
	return e
}

// Validate reports numbers that no back-off has, and what to write instead.
func (e Expirations) Validate() error {
	e = e.withDefaults()
	if err := errors.Join(validateLength("Expirations.WaitQueue", e.WaitQueue),
		validateDelay("Expirations.First", e.First, time.Millisecond, "1ms", DefaultExpirationsFirst)); err != nil {
		return err
	}
	if !(e.Factor >= 1 && e.Factor <= maxGrowth) { // written so that NaN fails too
		return fmt.Errorf("topology: Expirations.Factor %v: use 1 for delays that stay the same, more for such that grow, at most %d, or 0 for %v", e.Factor, maxGrowth, DefaultExpirationsFactor)
	}
	return nil
}

// Owns reports whether header is HeaderWaits or one of Trail's.
func (Expirations) Owns(header string) bool { return header == HeaderWaits || Trail{}.Owns(header) }

// Read returns the attempts that a Trail has counted, and those that the last
// expiration implies beyond it; and what else the Trail says.
func (e Expirations) Read(d Delivery) History {
	e = e.withDefaults()
	h := trailOf(d)
	w := e.last(d)
	if ms, ok := amqpvalue.Integer(d.Headers[HeaderWaits]); ok && ms > 0 && h.Attempts > 0 {
		h.Attempts = add(h.Attempts, e.retries(clampMilliseconds(ms), w))
	} else if w.count > 0 {
		h.Attempts = max(h.Attempts, add(1, e.retries(e.First, w)))
	}
	if h.FirstFailed.IsZero() && w.count > 0 && !w.died.IsZero() {
		h.FirstFailed = w.died.Add(-w.expiration) // it may have failed before, as far as is known it did not
	}
	return h
}

// Retry returns what Trail does: the expiration itself is the Route's to set.
func (Expirations) Retry(headers Table, f Failure) Table { return Trail{}.Retry(headers, f) }

// Park returns what Trail does, without HeaderWaits.
func (Expirations) Park(headers Table, f Failure) Table {
	out := headers.Clone()
	delete(out, HeaderWaits)
	return Trail{}.Park(out, f)
}

// wait is what x-death says of a message's waits.
type wait struct {
	expiration time.Duration // of the first wait that is counted
	count      int           // how many waits; 0 when the message has not waited yet
	died       time.Time     // when the first wait that is counted was over
}

// last returns the entry of x-death about the wait queue. RabbitMQ writes one at
// most, of which all but the count are those of the first time.
func (e Expirations) last(d Delivery) wait {
	queue := strings.ReplaceAll(e.WaitQueue, "{queue}", d.Queue)
	entries, _ := d.Headers[headerDeath].([]any)
	for _, entry := range entries {
		death, ok := entry.(Table)
		if !ok || death["queue"] != queue || death["reason"] != "expired" {
			continue
		}
		w := wait{expiration: e.First, count: max(1, amqpvalue.Count(death["count"]))}
		if expiration, ok := originalExpiration(death); ok {
			w.expiration = expiration
		}
		w.died, _ = death["time"].(time.Time)
		return w
	}
	return wait{}
}

// retries is how many retries lie between a copy that was given so long to wait,
// and what x-death says now.
func (e Expirations) retries(given time.Duration, w wait) int {
	n := max(0, w.count-1)
	if e.Factor == 1 {
		return n // the expiration tells nothing
	}
	steps := math.Round(math.Log(float64(w.expiration)/float64(given)) / math.Log(e.Factor))
	if steps <= 0 { // nor where nothing has expired
		return n
	}
	return add(n, int(min(steps, amqpvalue.MaxCount)))
}

// next is how long a message waits that has waited before: Factor times its last
// expiration. Where a copied x-death says that there was more than one wait, the
// program that copied it has read the same expiration there each time, and made
// Factor times that of it.
func (e Expirations) next(w wait) time.Duration {
	if w.count == 0 {
		return e.First
	}
	return clampDelay(float64(w.expiration) * math.Pow(e.Factor, float64(min(w.count, 2))))
}

// clampDelay is a delay that may be too long for a time.Duration, or no number.
func clampDelay(ns float64) time.Duration {
	if !(ns < float64(MaxDelay)) {
		return MaxDelay
	}
	return max(time.Millisecond, time.Duration(ns))
}

// originalExpiration reads the expiration a message died with: the text of a
// number of milliseconds.
func originalExpiration(death Table) (time.Duration, bool) {
	text, _ := death["original-expiration"].(string)
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms <= 0 {
		return 0, false
	}
	return clampMilliseconds(ms), true
}

func clampMilliseconds(ms int64) time.Duration {
	return time.Duration(min(ms, MaxDelay.Milliseconds())) * time.Millisecond
}
