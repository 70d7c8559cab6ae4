package presettest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// Rejections of all programs count.
func TestWorkRetryCountsRejectionsOfAllPrograms(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, queueType := range []string{"", "quorum"} {
			t.Run("type "+queueType, func(t *testing.T) {
				p := preset.WorkRetry{RetryDelay: 20 * time.Millisecond, QueueType: queueType, Prefix: testkit.Name(t, "pair") + "."}
				o := newOther(t, b, p.Prefix)
				c, err := reprise.Dial(t.Context(), b.URL, nil)
				if err != nil {
					t.Fatal(err)
				}
				err = c.Declare(t.Context(), p.Topology())
				if err := errors.Join(err, c.Close(t.Context())); err != nil {
					t.Fatal(err)
				}

				// The other program makes two attempts before the worker starts.
				o.publish(p.Prefix+"WorkExchange", "", amqp.Publishing{
					Body: []byte("job"), MessageId: "7", DeliveryMode: amqp.Persistent, Type: "flaky", CorrelationId: "c",
					Headers: amqp.Table{"own": int16(3)},
				})
				o.reject()
				if d := o.reject(); diffDeaths(d, p.Prefix, 1) != "" {
					t.Errorf("x-death: -want +got:\n%s", diffDeaths(d, p.Prefix, 1))
				}

				// The worker makes the third and the fourth attempt.
				h := &attempts{}
				stop := startWorker(t, b, p, reprise.WorkerConfig{Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
					if len(m.Headers) != 1 || m.Headers["own"] != int16(3) || m.Type != "flaky" || m.Exchange != p.Prefix+"WorkExchange" || m.RoutingKey != "" {
						t.Errorf("message: got %+v, want the published message without additional headers", m)
					}
					err := h.Handle(ctx, m)
					if m.Attempt == 4 {
						err = reprise.Park(err)
					}
					return err
				})})
				parked := o.get("WorkQueue.failed")
				stop()
				if diff := cmp.Diff([]int{3, 4}, h.all()); diff != "" {
					t.Errorf("attempts of the worker: -want +got:\n%s", diff)
				}
				if parked.MessageId != "7" || parked.CorrelationId != "c" || parked.Headers["x-reprise-attempts"] != int64(4) || parked.Headers["own"] != int16(3) {
					t.Errorf("parked message: got %+v, want the original properties and 4 attempts", parked)
				}
				if _, has := parked.Headers["x-death"]; has {
					t.Errorf("parked copy must not have the header x-death: got %v", parked.Headers)
				}
				if err := parked.Ack(false); err != nil {
					t.Fatal(err)
				}

				// The other program also counts the rejections of the worker.
				h = &attempts{}
				stop = startWorker(t, b, p, reprise.WorkerConfig{Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
					if m.Attempt > 2 {
						<-ctx.Done() // the message is for the other program, and is requeued when the worker stops
					}
					return h.Handle(ctx, m)
				}), DrainTimeout: time.Millisecond, Policy: reprise.Policy{MaxAttempts: 10}})
				o.publish(p.Prefix+"WorkExchange", "", amqp.Publishing{Body: []byte("job")})
				testkit.Eventually(t, workRetryTimeout, func() bool { return len(h.all()) >= 2 })
				stop()
				if d := o.reject(); diffDeaths(d, p.Prefix, 2) != "" {
					t.Errorf("x-death: -want +got:\n%s", diffDeaths(d, p.Prefix, 2))
				}
				if d := o.get("WorkQueue"); diffDeaths(d, p.Prefix, 3) != "" {
					t.Errorf("x-death: -want +got:\n%s", diffDeaths(d, p.Prefix, 3))
				} else if err := d.Ack(false); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// diffDeaths returns the difference between an x-death header and the header of a message that was rejected n times in
// WorkQueue and expired n times in RetryQueue.
func diffDeaths(d amqp.Delivery, prefix string, n int64) string {
	type death struct {
		Queue, Reason, Exchange string
		Count                   any
	}
	var got []death
	list, _ := d.Headers["x-death"].([]any)
	for _, e := range list {
		e, _ := e.(amqp.Table)
		queue, _ := e["queue"].(string)
		reason, _ := e["reason"].(string)
		exchange, _ := e["exchange"].(string)
		got = append(got, death{queue, reason, exchange, e["count"]})
	}
	return cmp.Diff([]death{
		{prefix + "RetryQueue", "expired", prefix + "RetryExchange", n},
		{prefix + "WorkQueue", "rejected", prefix + "WorkExchange", n},
	}, got)
}

// A message that was published to WorkQueue through the default exchange is also retried.
func TestWorkRetryRetriesDirectlyPublishedMessages(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, kind := range []string{"direct", "fanout", "topic"} {
			t.Run(kind, func(t *testing.T) {
				p := preset.WorkRetry{RetryDelay: 20 * time.Millisecond, Kind: kind, Prefix: testkit.Name(t, "pair") + "."}
				o := newOther(t, b, p.Prefix)
				h := &attempts{}
				stop := startWorker(t, b, p, reprise.WorkerConfig{Handler: h, Policy: reprise.Policy{MaxAttempts: 3}})
				o.publish("", p.Queue(), amqp.Publishing{Body: []byte("replayed")})
				parked := o.get("WorkQueue.failed")
				stop()
				if diff := cmp.Diff([]int{1, 2, 3}, h.all()); diff != "" || string(parked.Body) != "replayed" {
					t.Errorf("parked message: got %q; attempts: -want +got:\n%s", parked.Body, diff)
				}
				_ = parked.Ack(false)
			})
		}
	})
}

// RabbitMQ 4.3 counts a rejection as a failed delivery, and keeps the count when the message moves to another queue.
// The worker does not count a rejection as a crash.
func TestWorkRetryCountsCrashes(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		p := preset.WorkRetry{RetryDelay: 20 * time.Millisecond, QueueType: "quorum", Prefix: testkit.Name(t, "pair") + "."}
		o := newOther(t, b, p.Prefix)
		h := &attempts{}
		limits := reprise.WorkerConfig{Handler: h, Policy: reprise.Policy{MaxAttempts: 6}, CrashLimit: 2}
		stop := startWorker(t, b, p, limits)
		o.publish(p.Prefix+"WorkExchange", "", amqp.Publishing{Body: []byte("fails")})
		parked := o.get("WorkQueue.failed")
		stop()
		if diff := cmp.Diff([]int{1, 2, 3, 4, 5, 6}, h.all()); diff != "" || parked.Headers["x-reprise-crashes"] != nil {
			t.Errorf("parked message: got %v; attempts: -want +got:\n%s", parked.Headers, diff)
		}
		_ = parked.Ack(false)

		// After a rejection, three workers of other programs crash on the message. The worker subtracts the rejection
		// from the count of the queue. Before RabbitMQ 4.3, this count does not include the rejection, so the result is
		// one crash too low.
		o.publish(p.Prefix+"WorkExchange", "", amqp.Publishing{Body: []byte("kills")})
		o.reject()
		for range 3 {
			victim, err := amqp.Dial(b.URL)
			if err != nil {
				t.Fatal(err)
			}
			at := &otherProgram{t: t, conn: victim, pre: p.Prefix}
			at.open()
			at.get("WorkQueue")
			if err := victim.Close(); err != nil {
				t.Fatal(err)
			}
		}
		crashes := int64(3)
		if b.Version == "3.10" {
			crashes = 2
		}
		h = &attempts{}
		limits.Handler = h
		stop = startWorker(t, b, p, limits)
		parked = o.get("WorkQueue.failed")
		stop()
		if seen := h.all(); len(seen) != 0 || parked.Headers["x-reprise-crashes"] != crashes {
			t.Errorf("got attempts %v, parked message %v; want no attempts and %v crashes", seen, parked.Headers, crashes)
		}
		_ = parked.Ack(false)
	})
}

// The broker moves messages by dead-lettering. A message has only the body and the headers that other programs have
// published.
func TestWorkRetryPublishesNothingForARetry(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		p := preset.WorkRetry{RetryDelay: time.Hour, Prefix: testkit.Name(t, "pair") + "."}
		o := newOther(t, b, p.Prefix)
		stop := startWorker(t, b, p, reprise.WorkerConfig{Handler: &attempts{}})
		o.publish(p.Prefix+"WorkExchange", "", amqp.Publishing{Body: []byte("job"), Headers: amqp.Table{"own": "kept"}})
		d := o.get("RetryQueue")
		stop()
		_ = d.Ack(false)
		for header := range d.Headers {
			if strings.HasPrefix(header, "x-reprise-") {
				t.Errorf("waiting message must not have the header %s: got %v", header, d.Headers)
			}
		}
		if d.MessageId != "" || d.DeliveryMode != 0 || d.Headers["own"] != "kept" || d.Exchange != p.Prefix+"RetryExchange" {
			t.Errorf("message in RetryQueue: got %+v, want only the body and the header own", d)
		}
		if h := (topology.Deaths{}).Read(topology.Delivery{Queue: p.Queue(), Headers: deathsOf(d)}); h.Attempts != 1 {
			t.Errorf("Read: got %+v, want 1 attempt", h)
		}
	})
}

// deathsOf converts the x-death header to the types that a worker gets.
func deathsOf(d amqp.Delivery) topology.Table {
	var list []any
	deaths, _ := d.Headers["x-death"].([]any)
	for _, e := range deaths {
		if e, ok := e.(amqp.Table); ok {
			list = append(list, topology.Table(e))
		}
	}
	return topology.Table{"x-death": list}
}

// Quorum queues of this design need a delivery limit that is never reached, because a message that reaches RetryQueue
// without a rejection does not return.
func TestWorkRetryDeliveryLimitLosesMessage(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for limit, redelivered := range map[int64]bool{1: false, 2147483647: true} {
			o := newOther(t, b, testkit.Name(t, "pair")+".")
			if err := o.declare("direct", "", true, int32(50), amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": limit}); err != nil {
				t.Fatal(err)
			}
			o.publish(o.pre+"WorkExchange", "", amqp.Publishing{Body: []byte("kills")})
			for range 2 {
				o.get("WorkQueue")
				o.open() // requeues the unacked message of the old channel
			}
			if redelivered {
				if err := o.get("WorkQueue").Ack(false); err != nil {
					t.Error(err)
				}
				continue
			}
			// The second message cannot overtake the first. When it returns from RetryQueue, the first message has also passed
			// through.
			o.publish(o.pre+"WorkExchange", "", amqp.Publishing{Body: []byte("fails")})
			if d := o.reject(); string(d.Body) != "fails" {
				t.Fatalf("third delivery: got message %q, want fails", d.Body)
			}
			if d := o.get("WorkQueue"); string(d.Body) != "fails" {
				t.Errorf("unexpected message %q: the broker kept a message that reached its delivery limit", d.Body)
			} else {
				_ = d.Ack(false)
			}
			for _, q := range []string{"WorkQueue", "RetryQueue"} {
				if is, err := o.ch.QueueDeclarePassive(o.pre+q, true, false, false, false, nil); err != nil || is.Messages > 0 {
					t.Errorf("queue %s: got %+v, %v; want an empty queue", q, is, err)
				}
			}
		}
	})
}

// A worker without the design replaces the workers of the design, and does not lose waiting messages.
func TestWorkRetryMigratesToBuckets(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		o := newOther(t, b, testkit.Name(t, "pair")+".")
		if err := o.declare("direct", "", true, int32(50), nil); err != nil {
			t.Fatal(err)
		}
		o.publish(o.pre+"WorkExchange", "", amqp.Publishing{Body: []byte("job"), MessageId: "7"})
		o.reject() // moves the message to RetryQueue
		c, err := reprise.Dial(t.Context(), b.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.WithoutCancel(t.Context()))
		buckets := topology.Strategy{Route: topology.Buckets{Base: 10 * time.Millisecond}}
		failed := buckets.Route.Topology(o.pre + "WorkQueue")
		if err := errors.Join(c.Declare(t.Context(), failed), c.Declare(t.Context(), preset.WorkRetry{RetryDelay: 50 * time.Millisecond, Prefix: o.pre}.Topology())); err != nil {
			t.Fatalf("topologies of the two designs conflict: %v", err)
		}
		h := &attempts{}
		w, err := reprise.NewWorker(c, reprise.WorkerConfig{
			Queue: o.pre + "WorkQueue", Handler: h, Strategy: buckets, Policy: reprise.Policy{MaxAttempts: 2, Backoff: backoff.Fixed(5 * time.Millisecond)},
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Run(context.WithoutCancel(t.Context())) }()
		parked := o.get("WorkQueue.failed")
		if err := errors.Join(w.Shutdown(t.Context()), <-ended, parked.Ack(false)); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]int{1, 2}, h.all()); diff != "" || parked.MessageId != "7" {
			t.Errorf("parked message: got %v; attempts: -want +got:\n%s", parked.Headers, diff)
		}
		if _, err := o.ch.QueueDelete(o.pre+"WorkQueue.wait.0-10", false, false, false); err != nil {
			t.Error(err)
		}
	})
}

// A worker can use existing queues with arguments that the fields of the preset cannot set.
func TestWorkRetryUsesExistingQueues(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		p := preset.WorkRetry{RetryDelay: 20 * time.Millisecond, Prefix: testkit.Name(t, "pair") + "."}
		o := newOther(t, b, p.Prefix)
		if err := o.declare("direct", "", true, int32(20), amqp.Table{"x-queue-type": "quorum"}); err != nil {
			t.Fatal(err)
		}
		h := &attempts{}
		stop := startWorker(t, b, p, reprise.WorkerConfig{
			Handler: h, Policy: reprise.Policy{MaxAttempts: 3},
			Topology: topology.Topology{Queues: []topology.Queue{
				{Name: p.Prefix + "WorkQueue", Args: topology.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": p.Prefix + "RetryExchange"}},
				{Name: p.Prefix + "RetryQueue", Args: topology.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": p.Prefix + "WorkExchange", "x-message-ttl": int64(20)}},
			}},
		})
		o.publish(p.Prefix+"WorkExchange", "", amqp.Publishing{Body: []byte("job")})
		parked := o.get("WorkQueue.failed")
		stop()
		if diff := cmp.Diff([]int{1, 2, 3}, h.all()); diff != "" {
			t.Errorf("attempts: -want +got:\n%s", diff)
		}
		_ = parked.Ack(false)
	})
}

// The programs in the oldest articles do not reject messages. They publish copies to RetryExchange and acknowledge the
// originals. The copies return to workers. The count continues only if the broker trusts an x-death header of a client.
func TestWorkRetrySharesQueuesWithPublishersOfCopies(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		p := preset.WorkRetry{RetryDelay: 20 * time.Millisecond, Prefix: testkit.Name(t, "pair") + "."}
		o := newOther(t, b, p.Prefix)
		if err := o.declare("direct", "", true, int32(20), nil); err != nil {
			t.Fatal(err)
		}
		o.publish(p.Prefix+"WorkExchange", "", amqp.Publishing{Body: []byte("job")})
		o.reject()
		d := o.get("WorkQueue")
		o.publish(p.Prefix+"RetryExchange", "", amqp.Publishing{Body: d.Body, Headers: d.Headers})
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
		want := []int{1, 2}
		if b.Version == "3.10" {
			want = []int{2} // the rejection still counts; the copy never counted
		}
		h := &attempts{}
		stop := startWorker(t, b, p, reprise.WorkerConfig{Handler: h, Policy: reprise.Policy{MaxAttempts: 2}})
		_ = o.get("WorkQueue.failed").Ack(false)
		stop()
		if diff := cmp.Diff(want, h.all()); diff != "" {
			t.Errorf("attempts: -want +got:\n%s", diff)
		}
	})
}
