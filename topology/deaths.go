package topology

import (
	"fmt"
	"iter"
	"time"

	"github.com/reprisemq/reprise/internal/amqpvalue"
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
	h.Attempts = add(h.Attempts, rejections(d))
	for death := range rejected(d) {
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
// settled. RabbitMQ 4.3 takes its count along when the message goes from queue to
// queue, rejections included: those by d.Queue, which are attempts, are
// subtracted. Before 4.3 the count begins anew in each queue, so that some crashes
// are missing.
//
// What other queues rejected is not subtracted, since anybody can publish a
// message that says so, and hide its crashes. (Who says it of d.Queue claims as
// many attempts, and is parked for them.) A message that was rejected elsewhere
// and then came here counts as crashed, on 4.3, that much sooner.
func (Deaths) Crashes(d Delivery) int {
	n := deliveryCount(d)
	return n - min(n, rejections(d))
}

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

// rejected yields the entries of x-death about rejections by d.Queue. RabbitMQ
// writes one at most.
func rejected(d Delivery) iter.Seq[Table] {
	return func(yield func(Table) bool) {
		entries, _ := d.Headers[headerDeath].([]any)
		for _, e := range entries {
			death, ok := e.(Table)
			if ok && death["reason"] == "rejected" && death["queue"] == d.Queue && !yield(death) {
				return
			}
		}
	}
}

// rejections is how often d.Queue rejected the message.
func rejections(d Delivery) (n int) {
	for death := range rejected(d) {
		n = add(n, amqpvalue.Count(death["count"]))
	}
	return n
}

// rejectable reports a message that must not be rejected, for what a publisher has
// written into x-death. RabbitMQ before 4.0 takes that for its own. It counts on from
// -1000, for ever. A queue that is to add one to a text ends, each time the message is
// rejected, and delivers no other. And where d.Queue seems to have dead-lettered
// the message by itself, the way back to it may count as a cycle, and the message is
// dropped (https://www.rabbitmq.com/docs/dlx#routing).
func rejectable(d Delivery) error {
	entries, _ := d.Headers[headerDeath].([]any) // of anything else the broker makes a new one
	for _, e := range entries {
		death, _ := e.(Table)
		n, ok := amqpvalue.Integer(death["count"])
		if !ok || n < 1 || death["queue"] == d.Queue && death["reason"] != "rejected" {
			return fmt.Errorf("topology: its header x-death is not one that a broker has written on the way to %q (%v): "+
				"publish messages without the x-death of others", d.Queue, death)
		}
	}
	return nil
}

// add adds two counters.
func add(a, b int) int { return int(min(int64(a)+int64(b), amqpvalue.MaxCount)) }
