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

// HeaderWaits is a header that GrowingTTL writes on a copy in addition to Trail, and that Expirations
// reads. Its value is the expiration of the copy in milliseconds (int64).
const HeaderWaits = "x-reprise-waits"

// Defaults of Expirations and GrowingTTL.
const (
	DefaultExpirationsFirst  = 10 * time.Second
	DefaultExpirationsFactor = 3.0
)

// Expirations implements Marks for systems that record the progress of the backoff only in the last expiration of a
// message. The expiration of each copy is Factor times the previous expiration. The broker records the previous expiration
// in the header x-death, as original-expiration (https://www.rabbitmq.com/docs/dlx#effects).
//
// Expirations therefore counts the attempts of other programs, even if these programs do not count attempts. A message
// whose last expiration was First has had one attempt. With Factor 3, a message whose last expiration was three times
// First has had two attempts. Rounding removes jitter that changes an expiration by a factor of less than the square
// root of Factor. If Factor is 1, an expiration shows only that there was an attempt.
//
// Workers also write a Trail and, in HeaderWaits, the expiration of their copy. The count of attempts up to this copy
// is then exact, and Expirations derives only the later attempts of other programs from the expiration. Other programs
// may keep or drop these headers.
//
// A program that copies all headers also copies x-death. RabbitMQ 4.0 and later replace x-death when the copy expires.
// Earlier versions increase the count in x-death and keep the first original-expiration. The count is then the number
// of waits. Expirations ignores values in x-death that RabbitMQ does not write.
type Expirations struct {
	// WaitQueue is the queue in which copies expire, as named in x-death. {queue} is replaced by the
	// work queue. Default: {queue}.wait.
	WaitQueue string

	First  time.Duration // expiration of the first copy in whole milliseconds; default 10 s
	Factor float64       // ratio of an expiration to the previous expiration, from 1 (constant) to 1000; default 3
}

func (e Expirations) withDefaults() Expirations {
	e.WaitQueue = cmp.Or(e.WaitQueue, "{queue}.wait")
	e.First = cmp.Or(e.First, DefaultExpirationsFirst)
	e.Factor = cmp.Or(e.Factor, DefaultExpirationsFactor)
	return e
}

// Validate reports invalid settings and explains how to fix them.
func (e Expirations) Validate() error {
	e = e.withDefaults()
	if err := errors.Join(validateLength("Expirations.WaitQueue", e.WaitQueue),
		validateDelay("Expirations.First", e.First, time.Millisecond, "1ms", DefaultExpirationsFirst)); err != nil {
		return err
	}
	if !(e.Factor >= 1 && e.Factor <= maxGrowth) { // this form also rejects NaN
		return fmt.Errorf("topology: Expirations.Factor must be between 1 and %d: got %v (1 means constant delays, 0 means %v)", maxGrowth, e.Factor, DefaultExpirationsFactor)
	}
	return nil
}

// Owns reports whether header is HeaderWaits or a header of Trail.
func (Expirations) Owns(header string) bool { return header == HeaderWaits || Trail{}.Owns(header) }

// Read returns the history of Trail. The number of attempts includes the attempts that the last
// expiration implies.
func (e Expirations) Read(d Delivery) History {
	e = e.withDefaults()
	h := trailOf(d)
	w := e.last(d)
	if ms, ok := amqpvalue.Integer(d.Headers[HeaderWaits]); ok && ms > 0 && h.Attempts > 0 {
		h.Attempts = add(h.Attempts, e.retries(clampMilliseconds(ms), w))
	} else if w.count > 0 {
		h.Attempts = max(h.Attempts, add(1, e.retries(e.First, w)))
	}
	if h.FirstFailed.IsZero() && w.count > 0 && !w.ended.IsZero() {
		h.FirstFailed = w.ended.Add(-w.expiration) // there may have been earlier failures, at an unknown time
	}
	return h
}

// Retry returns the same headers as Trail. The Route sets the expiration.
func (Expirations) Retry(headers Table, f Failure) Table { return Trail{}.Retry(headers, f) }

// Park returns the same headers as Trail, without HeaderWaits.
func (Expirations) Park(headers Table, f Failure) Table {
	out := headers.Clone()
	delete(out, HeaderWaits)
	return Trail{}.Park(out, f)
}

// wait summarizes the waits of a message, as recorded in x-death.
type wait struct {
	expiration time.Duration // expiration of the first counted wait
	count      int           // number of waits; 0 if the message has not waited yet
	others     int           // number of waits in other entries
	ended      time.Time     // end of the first counted wait
}

// last summarizes the entries of x-death for the wait queue: the fields of the newest entry, and the counts of the others.
// RabbitMQ writes a separate entry for each reason: expired, or rejected if an operator has retried the message early.
// All fields of an entry except the count describe the first wait.
func (e Expirations) last(d Delivery) wait {
	queue := strings.ReplaceAll(e.WaitQueue, "{queue}", d.Queue)
	var w wait
	entries, _ := d.Headers[headerDeath].([]any)
	for _, entry := range entries {
		death, ok := entry.(Table)
		if !ok || death["queue"] != queue || death["reason"] != "expired" && death["reason"] != "rejected" {
			continue
		}
		count := max(1, amqpvalue.Count(death["count"]))
		if w.count > 0 { // the newest entry is the first
			w.others = add(w.others, count)
			continue
		}
		w.count, w.expiration = count, e.First
		if expiration, ok := originalExpiration(death); ok {
			w.expiration = expiration
		}
		w.ended = amqpvalue.Time(death["time"])
	}
	return w
}

// retries returns the number of retries, derived from w, that followed a copy whose expiration was initial.
func (e Expirations) retries(initial time.Duration, w wait) int {
	n := max(0, w.count-1)
	if e.Factor == 1 {
		return add(n, w.others) // a constant expiration does not indicate a count
	}
	steps := math.Round(math.Log(float64(w.expiration)/float64(initial)) / math.Log(e.Factor))
	if !(steps > 0) { // also true if the message has not waited, because steps is then -Inf or NaN
		steps = 0
	}
	return add(n, max(w.others, int(min(steps, amqpvalue.MaxCount)))) // steps may already include w.others
}

// next returns the next expiration of a message: Factor times its last expiration. A count of more
// than one comes from a copied x-death. The program that copied it read the same expiration for each
// copy, and used Factor times that value.
func (e Expirations) next(w wait) time.Duration {
	if w.count == 0 {
		return e.First
	}
	return clampDelay(float64(w.expiration) * math.Pow(e.Factor, float64(min(w.count, 2))))
}

// clampDelay converts a delay that may exceed a time.Duration or be NaN.
func clampDelay(ns float64) time.Duration {
	if !(ns < float64(MaxDelay)) {
		return MaxDelay
	}
	return max(time.Millisecond, time.Duration(ns))
}

// originalExpiration returns the expiration that a message had when it expired. An entry of x-death contains this
// value as a string of milliseconds.
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
