package brokertest

import (
	"cmp"
	"fmt"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/internal/budget"
)

// lateClient is a consumer that acknowledges messages only when the test calls ack.
type lateClient struct {
	t       *testing.T
	got     []amqp.Delivery // unacked deliveries
	seen    map[string]bool
	deliver <-chan amqp.Delivery
}

func consumeLate(t *testing.T, ch *amqp.Channel, queue string) *lateClient {
	t.Helper()
	ds, err := ch.Consume(queue, "", false, false, false, false, nil)
	must(t, err)
	return &lateClient{t: t, seen: make(map[string]bool), deliver: ds}
}

// take receives all messages that the broker has delivered so far.
func (l *lateClient) take() {
	l.t.Helper()
	for {
		synctest.Wait()
		select {
		case d, open := <-l.deliver:
			if !open {
				l.t.Fatalf("broker closed the connection with %d unacked messages", len(l.got))
			}
			if d.Redelivered || l.seen[string(d.Body)] {
				l.t.Fatalf("message %s was delivered twice", d.Body)
			}
			l.seen[string(d.Body)] = true
			l.got = append(l.got, d)
		default:
			return
		}
	}
}

// ack acknowledges the oldest n unacked messages.
func (l *lateClient) ack(n int) {
	must(l.t, l.got[n-1].Ack(true))
	l.got = l.got[n:]
}

// fill publishes messages to a quorum queue with a delivery limit of 2.
func fill(t *testing.T, conn *amqp.Connection, queue string, messages int) {
	t.Helper()
	ch := channel(t, conn)
	must(t, declare(ch, queue, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 2}))
	for i := range messages {
		must(t, ch.Publish("", queue, false, false, amqp.Publishing{Body: fmt.Append(nil, i)}))
	}
	must(t, ch.Close())
}

// Consumers that acknowledge late and do not set a prefetch receive only as many messages as fit into memory, and
// receive more messages after they acknowledge. The broker does not close their connections, because all their
// deliveries would then count as failed.
func TestBrokerDoesNotCloseLateConsumers(t *testing.T) {
	const limit = 4 << 20
	for name, test := range map[string]struct{ consumers, messages, batch int }{
		"four consumers": {4, 18_000, 0},
		"one consumer that acknowledges batches of 5,000": {1, 72_000, 5000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, conn := start(t, broker.Config{MaxMessageSize: limit / 2, ConnectionMemoryLimit: limit})
				own := dial(t, b)
				var all []*lateClient
				for i := range test.consumers {
					queue := fmt.Sprint("q", i)
					fill(t, conn, queue, test.messages)
					all = append(all, consumeLate(t, channel(t, own), queue))
				}
				held := 0
				for _, l := range all {
					l.take()
					held += len(l.got)
				}
				if used := nodeOf(b).Connections.Used(); held == test.consumers*test.messages || used < limit/2 || used > limit {
					t.Fatalf("%d messages are unacked and use %d bytes, want at most %d bytes and at least half of that", held, used, limit)
				}
				last := all[len(all)-1]
				before := len(last.seen)
				for i, l := range all {
					if l.take(); i > 0 && l == last && len(l.seen) == before {
						t.Errorf("last consumer still has only %d messages although the other consumers acknowledged", before)
					}
					for len(l.seen) < test.messages {
						if len(l.got) == 0 || len(l.got) < test.batch {
							t.Fatalf("delivery stopped after %d of %d messages", len(l.seen), test.messages)
						}
						l.ack(cmp.Or(test.batch, len(l.got)))
						l.take()
					}
					l.ack(len(l.got))
				}
				synctest.Wait()
				for _, q := range b.Queues() {
					if q.Ready+q.Unacked > 0 {
						t.Errorf("%d messages are still in the queues", q.Ready+q.Unacked)
					}
				}
			})
		})
	}
}

// A consumer receives as many messages as its prefetch allows, regardless of the memory use of other connections. Otherwise,
// a consumer that acknowledges only batches of this size would wait indefinitely.
func TestPrefetchIgnoresMemoryOfOtherConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, prefetch = 16 << 20, 2000
		b, conn := start(t, broker.Config{TotalConnectionMemoryLimit: limit})
		fill(t, conn, "q", 2*prefetch)
		others := nodeOf(b).Connections.Open(func(budget.Excess) { t.Error("memory of another connection exceeds its limit") })
		defer others.Close()
		others.Take(budget.Consumers, limit*3/5)
		defer others.Give(budget.Consumers, limit*3/5)
		ch := channel(t, conn)
		must(t, ch.Qos(prefetch, 0, false))
		l := consumeLate(t, ch, "q")
		for range 2 {
			l.take()
			if len(l.got) != prefetch {
				t.Fatalf("deliveries: got %d, want %d", len(l.got), prefetch)
			}
			l.ack(prefetch)
		}
	})
}
