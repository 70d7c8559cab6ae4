package brokertest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
)

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the second collection frees unused objects in pools
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// pinned contains the ways in which a channel can keep a reference to a deleted queue.
var pinned = map[string]struct {
	prepare, use func(ch *amqp.Channel, queue string) error
}{
	"an unacked message": {
		prepare: func(*amqp.Channel, string) error { return nil },
		use: func(ch *amqp.Channel, queue string) error {
			if err := ch.Publish("", queue, true, false, amqp.Publishing{}); err != nil {
				return err
			}
			_, _, err := ch.Get(queue, false)
			return err
		},
	},
	"a transaction": {
		prepare: func(ch *amqp.Channel, _ string) error { return ch.Tx() },
		use: func(ch *amqp.Channel, queue string) error {
			return ch.Publish("", queue, true, false, amqp.Publishing{})
		},
	},
}

// When a queue is deleted, the broker frees its arguments, even if a channel still refers to the queue.
func TestDeletedQueueFreesArguments(t *testing.T) {
	const queues, size = 300, 100_000
	args := amqp.Table{"x-comment": strings.Repeat("x", size)}
	declareAndDelete := func(t *testing.T, ch *amqp.Channel, queue string, use func(*amqp.Channel, string) error) {
		must(t, declare(ch, queue, args))
		must(t, use(ch, queue))
		_, err := ch.QueueDelete(queue, false, false, false)
		must(t, err)
	}
	for name, test := range pinned {
		t.Run(name, func(t *testing.T) {
			_, conn := start(t, broker.Config{})
			ch := channel(t, conn)
			must(t, test.prepare(ch, "q"))
			before := heap()
			for i := range queues {
				declareAndDelete(t, ch, fmt.Sprint("q", i), test.use)
			}
			if grown := heap() - before; grown > queues*size/4 {
				t.Errorf("heap growth for %d deleted queues: got %d KiB, want at most %d", queues, grown>>10, queues*size/4>>10)
			}
		})
	}
	t.Run("the route of the last message", func(t *testing.T) {
		_, conn := start(t, broker.Config{})
		var chs []*amqp.Channel
		for range queues {
			chs = append(chs, channel(t, conn))
		}
		before := heap()
		for i, ch := range chs {
			declareAndDelete(t, ch, fmt.Sprint("q", i), func(ch *amqp.Channel, queue string) error {
				return ch.Publish("", queue, true, false, amqp.Publishing{})
			})
		}
		if grown := heap() - before; grown > queues*size/4 {
			t.Errorf("heap growth for %d deleted queues: got %d KiB, want at most %d", queues, grown>>10, queues*size/4>>10)
		}
	})
}

// A deleted queue counts towards the memory limits while a channel refers to it.
func TestMemoryIncludesReferencedDeletedQueue(t *testing.T) {
	for name, test := range pinned {
		for _, exclusive := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", exclusive ", exclusive), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b, conn := start(t, broker.Config{})
					used := func() int64 {
						synctest.Wait()
						if exclusive {
							return nodeOf(b).Connections.Used()
						}
						return nodeOf(b).Topology.Used()
					}
					var before int64
					for range 2 { // the first round caches the permissions
						ch := channel(t, conn)
						must(t, test.prepare(ch, "q"))
						_, err := ch.QueueDeclare("q", true, false, exclusive, false, nil)
						must(t, err)
						must(t, test.use(ch, "q"))
						declared := used()
						_, err = ch.QueueDelete("q", false, false, false)
						must(t, err)
						if got := used(); got != declared {
							t.Errorf("account with a reference to the deleted queue: got %d bytes, want %d", got, declared)
						}
						must(t, ch.Close())
						if got := used(); before != 0 && got != before {
							t.Errorf("account without references: got %d bytes, want %d", got, before)
						}
						before = used()
					}
				})
			})
		}
	}
}
