package topology

import (
	"fmt"
	"iter"

	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// Deaths implements Marks for messages that the worker rejects without a copy, and that the broker dead-letters. The broker
// counts the rejections by each queue in the header x-death (https://www.rabbitmq.com/docs/dlx#effects). For these
// messages, Deaths provides only the number of attempts, the time of the first failure, and the original exchange and
// routing key. When a worker parks a message, it publishes a copy with the headers of Trail and the last error.
type Deaths struct{}

// Owns reports whether header is a header of Trail.
func (Deaths) Owns(header string) bool { return Trail{}.Owns(header) }

// Read returns the history of Trail. It adds the number of rejections by d.Queue to the attempts, and completes the
// history with the time of the first rejection and the original exchange and routing key. Read ignores values in x-death
// that RabbitMQ does not write.
func (Deaths) Read(d Delivery) History {
	h := trailOf(d)
	h.Attempts = add(h.Attempts, rejections(d))
	for death := range rejected(d) {
		if h.FirstFailed.IsZero() {
			h.FirstFailed = amqpvalue.Time(death["time"])
		}
		if exchange, key, ok := published(death); ok && h.Queue == "" {
			h.Queue, h.Exchange, h.RoutingKey = d.Queue, exchange, key
		}
	}
	return h
}

// Crashes returns the number of deliveries of this message that were never settled. When the message moves between queues,
// RabbitMQ 4.3 keeps the count of deliveries, which includes rejections. Crashes subtracts rejections by d.Queue, because
// these rejections are attempts. Before 4.3, the count restarts in each queue, so the result does not include earlier
// crashes.
//
// Crashes does not subtract rejections by other queues, because any publisher can write such an x-death header and hide
// crashes. (A forged rejection by d.Queue counts as an attempt, so the worker still parks the message.) On 4.3, rejections
// by other queues therefore count as crashes.
func (Deaths) Crashes(d Delivery) int {
	n := deliveryCount(d)
	return n - min(n, rejections(d))
}

// Retry returns the same headers as Trail. A worker calls Retry only if the worker publishes a copy.
func (Deaths) Retry(headers Table, f Failure) Table { return Trail{}.Retry(headers, f) }

// Park returns the same headers as Trail.
func (Deaths) Park(headers Table, f Failure) Table { return Trail{}.Park(headers, f) }

const headerDeath = "x-death"

// published returns the exchange and the routing key that a message had before it was dead-lettered.
func published(death Table) (exchange, key string, ok bool) {
	exchange, ok = death["exchange"].(string)
	keys, _ := death["routing-keys"].([]any)
	if !ok || len(keys) == 0 {
		return "", "", false
	}
	key, ok = keys[0].(string) // the other keys are from the header CC
	return exchange, key, ok
}

// rejected yields the entries of x-death that record rejections by d.Queue. RabbitMQ writes at most one.
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

// rejections returns the number of rejections of the message by d.Queue.
func rejections(d Delivery) (n int) {
	for death := range rejected(d) {
		n = add(n, amqpvalue.Count(death["count"]))
	}
	return n
}

// checkRejectable returns an error if the worker must not reject the message, because a publisher has written the header
// x-death. RabbitMQ before 4.0 trusts this header. If a forged count is -1000, RabbitMQ continues to count from there, which
// permits 1000 additional retries. If the count is a string, the queue process terminates at each rejection of the message
// and does not deliver other messages. If the header contains a dead-lettering by d.Queue other than a rejection, RabbitMQ
// may treat the return of the message as a cycle and drop it (https://www.rabbitmq.com/docs/dlx#routing).
func checkRejectable(d Delivery) error {
	entries, _ := d.Headers[headerDeath].([]any) // the broker replaces a value of another type
	for _, e := range entries {
		death, _ := e.(Table)
		n, ok := amqpvalue.Integer(death["count"])
		if !ok || n < 1 || death["queue"] == d.Queue && death["reason"] != "rejected" {
			return fmt.Errorf("topology: header x-death must come from the broker of %q: got %v (publish messages without x-death)", d.Queue, death)
		}
	}
	return nil
}

// add adds two counters, up to amqpvalue.MaxCount.
func add(a, b int) int { return int(min(int64(a)+int64(b), amqpvalue.MaxCount)) }
