package workertest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// everyOther handles many messages concurrently. It completes messages with odd IDs when first is closed, or when the worker
// stops. It completes messages with even IDs when second is closed; if the worker stops first, they fail. Therefore each ack
// follows a gap, and no two acks can be combined.
type everyOther struct {
	first, second chan struct{}
	result        error

	mu   sync.Mutex
	seen map[string]int
}

func newEveryOther(result error) *everyOther {
	return &everyOther{first: make(chan struct{}), second: make(chan struct{}), result: result, seen: map[string]int{}}
}

func (h *everyOther) Handle(ctx context.Context, m *reprise.Delivery) error {
	h.mu.Lock()
	h.seen[m.MessageID]++
	h.mu.Unlock()
	wait := h.first
	if even(m.MessageID) {
		wait = h.second
	}
	select {
	case <-wait:
		return h.result
	case <-ctx.Done():
		if even(m.MessageID) {
			return context.Cause(ctx)
		}
		return h.result
	}
}

func even(number string) bool { return (number[len(number)-1]-'0')%2 == 0 }

// runs returns the number of times that a message was handled.
func (h *everyOther) runs(id string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen[id]
}

// messages returns the number of handled messages.
func (h *everyOther) messages() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.seen)
}

// delayAcks publishes 24 MiB to a quorum queue, so that disk writes delay the acks.
func delayAcks(t testing.TB, r *raw) {
	queue := testkit.Name(t, "busy")
	if _, err := r.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		t.Fatal(err)
	}
	r.deleteQueues(queue)
	body := make([]byte, 1<<20)
	for range 24 {
		if err := r.Publish("", queue, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body}); err != nil {
			t.Fatal(err)
		}
	}
}

// If a connection with many acks in flight is lost, RabbitMQ discards some of the acks, even if it has responded to later
// requests. The worker must not report a discarded ack as known.
func TestAckedReportsConcurrentAcksCorrectly(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		const count = 32
		r := newRaw(t, b.URL)
		work, strategy := r.names(topology.Buckets{})
		proxy := testkit.NewProxy(t, b.URL)
		h := newEveryOther(nil)
		c := dial(t, proxy.URL())
		var cut sync.Once
		var sessions int // number of sessions before the cut
		enough := make(chan struct{})
		var mu sync.Mutex
		known := map[string]int{} // number of runs of each message when its ack became known
		start(t, c, reprise.WorkerConfig{
			Queue: work, Strategy: strategy, Handler: h, Concurrency: count, Prefetch: count,
			Acked: func(m *reprise.Delivery, err error) {
				if err != nil {
					return
				}
				mu.Lock()
				if _, before := known[m.MessageID]; !before {
					known[m.MessageID] = h.runs(m.MessageID)
				}
				many := len(known) > 5
				mu.Unlock()
				if many {
					cut.Do(func() {
						sessions = c.log.count("consuming")
						proxy.Cut()
						close(enough)
					})
				}
			},
		})
		for i := range count {
			r.publish("", work, amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		testkit.Eventually(t, timeout, func() bool { return h.messages() == count })
		delayAcks(t, r)
		close(h.first)
		<-enough
		c.log.wait(t, "consuming", sessions+1)
		close(h.second)
		testkit.Eventually(t, timeout, func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(known) == count && r.depth(work) == 0
		})
		for id, run := range known {
			if runs := h.runs(id); runs != run {
				t.Errorf("runs of message %s: got %d, want %d, because its ack was reported as known in that run", id, runs, run)
			}
		}
	})
}

// RabbitMQ also discards acks in flight if the channel is closed, so a stopping worker must wait until they are known.
func TestShutdownWaitsUntilBrokerHasReadAcks(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		const count = 200
		r := newRaw(t, b.URL)
		work, strategy := r.names(topology.Buckets{})
		h := newEveryOther(nil)
		c := dial(t, b.URL)
		stop := start(t, c, reprise.WorkerConfig{
			Queue: work, Strategy: strategy, Handler: h, Concurrency: count, Prefetch: count, DrainTimeout: time.Millisecond,
		})
		for i := range count {
			r.publish("", work, amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		testkit.Eventually(t, timeout, func() bool { return h.messages() == count })
		if err := stop(); err != nil {
			t.Error(err)
		}
		for range count / 2 {
			if d := r.take(work); !even(d.MessageId) {
				t.Fatalf("acknowledged message %s is still in the queue", d.MessageId)
			}
		}
	})
}

// The worker publishes a copy only after the ack of the original is known. If RabbitMQ discards the ack because the
// connection is lost, the worker does not publish the copy.
func TestAckThenPublishDoesNotDuplicateConcurrentMessages(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		const count = 32
		r := newRaw(t, b.URL)
		work, strategy := r.names(topology.Buckets{})
		proxy := testkit.NewProxy(t, b.URL)
		h := newEveryOther(errScripted)
		c := dial(t, proxy.URL())
		stop := start(t, c, reprise.WorkerConfig{
			Queue: work, Strategy: strategy, Handler: h, Concurrency: count, Prefetch: count,
			Order: reprise.AckThenPublish, Policy: reprise.Policy{MaxAttempts: 1},
		})
		for i := range count {
			r.publish("", work, amqp.Publishing{MessageId: fmt.Sprint(i)})
		}
		testkit.Eventually(t, timeout, func() bool { return h.messages() == count })
		sessions := c.log.count("consuming")
		const acks, copies = count / 2, 3 // a copy has three frames
		cut := proxy.CutAfterFrame(testkit.ToServer, acks+3*copies)
		delayAcks(t, r)
		close(h.first)
		<-cut
		c.log.wait(t, "consuming", sessions+1)
		close(h.second)
		testkit.Eventually(t, timeout, func() bool {
			for i := 0; i < count; i += 2 {
				if h.runs(fmt.Sprint(i)) < 2 {
					return false
				}
			}
			return true
		})
		if err := stop(); err != nil {
			t.Error(err)
		}
		seen := map[string]bool{}
		for _, id := range append(r.drained(work), r.drained(work+".failed")...) {
			if seen[id] {
				t.Errorf("message %s is duplicated", id)
			}
			seen[id] = true
		}
		if len(seen) < count/2 {
			t.Errorf("messages: got %d, want at least %d", len(seen), count/2)
		}
	})
}

// If the broker does not receive the ack of the original, it redelivers the original, and the worker does not publish the copy.
func TestAckThenPublishDropsCopyIfAckIsLost(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		work, strategy := r.names(topology.Buckets{})
		proxy := testkit.NewProxy(t, b.URL)
		h := newHeldHandler(t)
		stop := start(t, dial(t, proxy.URL()), reprise.WorkerConfig{
			Queue: work, Strategy: strategy, Handler: h,
			Order: reprise.AckThenPublish, Policy: reprise.Policy{MaxAttempts: 1},
		})
		r.publish("", work, amqp.Publishing{MessageId: "id"})
		first := h.next()
		cut := proxy.CutInAck()
		first.result <- errScripted
		<-cut
		h.next().result <- errScripted
		if err := stop(); err != nil {
			t.Error(err)
		}
		if left := append(r.drained(work), r.drained(work+".failed")...); len(left) != 1 {
			t.Errorf("got messages %q, want one", left)
		}
	})
}
