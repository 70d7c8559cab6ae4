package topology

import (
	"iter"
	"math"
	"time"
)

// Deaths are the Marks of messages that are rejected and dead-lettered rather
// than copied: the broker counts, in the header x-death, how often which queue
// rejected them (https://www.rabbitmq.com/docs/dlx#effects). Of an attempt is
// known that it was made, and when the first one was. When the message is
// parked, by a copy, that carries what a Trail does, with the last error.
type Deaths struct{}

// Owns reports whether header is one of Trail's.
func (Deaths) Owns(header string) bool { return Trail{}.Owns(header) }

// Read returns how often d.Queue has rejected the message, when that was first,
// and where it had been published to. Anything in x-death that RabbitMQ would
// not write counts as absent.
func (Deaths) Read(d Delivery) History {
	h := trailOf(d)
	for death := range deathsBy(d, "rejected") {
		if queue, _ := death["queue"].(string); queue != d.Queue {
			continue
		}
		h.Attempts = add(h.Attempts, count(death["count"]))
		if first, ok := death["time"].(time.Time); ok && h.FirstFailed.IsZero() {
			h.FirstFailed = first
		}
		if exchange, key, ok := published(death); ok && h.Queue == "" {
			h.Queue, h.Exchange, h.RoutingKey = d.Queue, exchange, key
		}
	}
	return h
}

// Crashes returns how many deliveries of this message ended without being
// settled. RabbitMQ 4 counts rejections as well, and takes the count along when
// the message goes from queue to queue: they are subtracted. RabbitMQ before 4.3
// begins anew in each queue, so that some are missing there, never too many.
func (Deaths) Crashes(d Delivery) int { return countedHere(d) }

// Retry returns what Trail does. It is not asked where nothing is copied.
func (Deaths) Retry(headers Table, f Failure) Table { return Trail{}.Retry(headers, f) }

// Park returns what Trail does.
func (Deaths) Park(headers Table, f Failure) Table { return Trail{}.Park(headers, f) }

const headerDeath = "x-death"

// published returns where a message had been published to that died.
func published(death Table) (exchange, key string, ok bool) {
	exchange, ok = death["exchange"].(string)
	keys, _ := death["routing-keys"].([]any)
	if !ok || len(keys) == 0 {
		return "", "", false
	}
	key, ok = keys[0].(string) // the others are those of the header CC
	return exchange, key, ok
}

// deathsBy yields the entries of x-death with that reason.
func deathsBy(d Delivery, reason string) iter.Seq[Table] {
	return func(yield func(Table) bool) {
		entries, _ := d.Headers[headerDeath].([]any)
		for _, e := range entries {
			if death, ok := e.(Table); ok && death["reason"] == reason && !yield(death) {
				return
			}
		}
	}
}

// countedHere is the number of failed deliveries that the queue counts for d,
// without those that ended in a rejection, which are counted in x-death.
func countedHere(d Delivery) int {
	n := deliveryCount(d)
	for death := range deathsBy(d, "rejected") {
		n -= min(n, count(death["count"]))
	}
	return n
}

// count reads a counter that others wrote; whatever is no number is 0.
func count(v any) int {
	n, _ := Integer(v)
	return int(min(max(n, 0), math.MaxInt32))
}

// add adds two counters.
func add(a, b int) int { return min(a+b, math.MaxInt32) }
