package staking_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/staking/staking"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// eachOrder runs a test for each broker and each queue type, twice. In one run, the original client is the first to
// declare the queues, and in the other run, the Queue.
func eachOrder(t *testing.T, test func(t *testing.T, url, queueType string, oursFirst bool)) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, queueType := range []string{"quorum", "classic"} {
			t.Run(queueType+", theirs first", func(t *testing.T) { test(t, b.URL, queueType, false) })
			t.Run(queueType+", ours first", func(t *testing.T) { test(t, b.URL, queueType, true) })
		}
	})
}

// The Queue and the original client can each receive messages that the other has requeued, and the count continues.
func TestQueueInteroperatesWithOriginalClient(t *testing.T) {
	eachOrder(t, func(t *testing.T, url, queueType string, oursFirst bool) {
		name := testkit.Name(t, "staking")
		config := staking.Config{Design: short(queueType)}
		var q *staking.Queue
		var o *original
		if oursFirst {
			q = open(t, url, name, config)
		}
		o = newOriginal(t, url, name, queueType, 20*time.Millisecond)
		if !oursFirst {
			q = open(t, url, name, config)
		}

		o.send("first")
		if m := o.receive(); m.attempts != 0 {
			t.Errorf("original, first delivery: got %d attempts, want 0", m.attempts)
		} else {
			o.requeue(m)
		}
		m := o.receive()
		if m.attempts != 1 || m.body != "first" {
			t.Errorf("original, requeued by the original: got %+v, want \"first\" with 1 attempt", m)
		}
		o.stop()
		o.requeue(m)

		ours := receive(t, q)
		if ours.RetryAttempts != 2 || string(ours.Body) != "first" {
			t.Errorf("Queue, requeued by the original: got %d retries of %q, want 2 of \"first\"", ours.RetryAttempts, ours.Body)
		}
		must(t, q.Requeue(ours.Receipt, errors.New("not yet")))
		ours = receive(t, q)
		if ours.RetryAttempts != 3 || len(ours.Errors) != 1 || ours.Errors[0].Error != "not yet" {
			t.Errorf("Queue, requeued by the Queue: got %d retries, errors %v, want 3, \"not yet\"", ours.RetryAttempts, ours.Errors)
		}
		must(t, q.Requeue(ours.Receipt, nil))
		must(t, q.Stop(t.Context()))

		m = o.receive()
		if m.attempts != 4 || m.body != "first" {
			t.Errorf("original, requeued by the Queue: got %+v, want \"first\" with 4 attempts", m)
		}
		o.stop() // stop the consumer first, because otherwise the original would receive the message again
		o.requeue(m)

		q = open(t, url, name, config)
		ours = receive(t, q)
		if ours.RetryAttempts != 5 || string(ours.Body) != "first" {
			t.Errorf("Queue, requeued by the original: got %d retries of %q, want 5 of \"first\"", ours.RetryAttempts, ours.Body)
		}
		must(t, q.Delete(ours.Receipt))
		must(t, q.Send(t.Context(), []byte("second")))
		must(t, q.Stop(t.Context()))

		m = o.receive()
		if m.attempts != 0 || m.body != "second" {
			t.Errorf("original, sent by the Queue: got %+v, want \"second\" with 0 attempts", m)
		}
		o.delete(m.receipt)
		for _, suffix := range []string{"", "_delay", "_failed"} {
			if n := o.depth(name + suffix); n != 0 {
				t.Errorf("queue %s has %d messages, want 0", suffix, n)
			}
		}
	})
}

// A worker with a handler can share the queue in the same way as a Queue.
func TestWorkerInteroperatesWithOriginalClient(t *testing.T) {
	eachOrder(t, func(t *testing.T, url, queueType string, oursFirst bool) {
		name := testkit.Name(t, "staking")
		var o *original
		join := func() { o = newOriginal(t, url, name, queueType, 20*time.Millisecond) }
		if !oursFirst {
			join()
		}
		client, err := reprise.Dial(t.Context(), url, nil)
		must(t, err)
		t.Cleanup(func() { must(t, client.Close(context.Background())) })
		attempts := make(chan int, 10)
		worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
			Queue:    name,
			Strategy: short(queueType).Strategy(),
			Policy:   reprise.Policy{MaxAttempts: 5},
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				attempts <- m.Attempt
				return errors.New("down")
			}),
		})
		must(t, err)
		ran := make(chan error, 1)
		go func() { ran <- worker.Run(context.WithoutCancel(t.Context())) }()
		t.Cleanup(func() { must(t, errors.Join(worker.Shutdown(context.Background()), <-ran)) })
		testkit.Eventually(t, within, func() bool { return worker.Status().Err == nil })
		if oursFirst {
			join()
		}

		o.publish(name, "first", 2, 0) // other programs have requeued the message twice
		d := o.take(name + "_failed")
		for want := 3; want <= 5; want++ {
			if got := <-attempts; got != want {
				t.Errorf("attempt: got %d, want %d", got, want)
			}
		}
		if d.Headers["x-processing-attempts"] != int32(5) || d.Headers["x-reprise-reason"] != "5 attempts made" || string(d.Body) != "first" {
			t.Errorf("parked message: got %q with headers %v, want \"first\" with 5 attempts", d.Body, d.Headers)
		}
	})
}

// TestQueuePublishesSpecifiedProperties checks every property and header that other programs can see.
func TestQueuePublishesSpecifiedProperties(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, queueType := range []string{"quorum", "classic"} {
			t.Run(queueType, func(t *testing.T) {
				name := testkit.Name(t, "staking")
				q := open(t, b.URL, name, staking.Config{Design: long(queueType), MaxRetries: 3})
				o := newOriginal(t, b.URL, name, queueType, time.Hour)

				must(t, q.Send(t.Context(), []byte("{}")))
				sent := o.take(name)
				want := amqp.Publishing{
					ContentType: "text/plain", DeliveryMode: 2, Headers: amqp.Table{"x-processing-attempts": int32(0)}, Body: []byte("{}"),
				}
				if diff := cmp.Diff(want, wire(sent), cmpopts.IgnoreFields(amqp.Publishing{}, "MessageId")); diff != "" || sent.MessageId == "" {
					t.Errorf("sent, -want +got:\n%s", diff)
				}

				// Requeue keeps all properties of a message.
				began := time.Now().Truncate(time.Second)
				full := amqp.Publishing{
					ContentType: "application/json", ContentEncoding: "identity", CorrelationId: "correlation", ReplyTo: "reply", MessageId: "id",
					Timestamp: time.Unix(1_724_000_000, 0), Type: "type", AppId: "app", Priority: 3, DeliveryMode: 2, Body: []byte(`{"a":1}`),
					Headers: amqp.Table{
						"x-processing-attempts": int64(1), // the original writes int32, but some clients convert it to int64
						"trace":                 "00-1", "nested": amqp.Table{"n": int16(7)},
					},
				}
				o.put(name, full)
				m := receive(t, q)
				if m.RetryAttempts != 1 || m.Headers["trace"] != "00-1" || m.Headers["x-processing-attempts"] != nil || m.ContentType != "application/json" {
					t.Errorf("received: got %+v with headers %v, want 1 retry, application/json and trace 00-1", m, m.Headers)
				}
				must(t, q.Requeue(m.Receipt, errors.New("not yet")))
				copied := o.take(name + "_delay")
				if copied.Exchange != "" || copied.RoutingKey != name+"_delay" {
					t.Errorf("copy: got exchange %q, key %q, want \"\" and %q", copied.Exchange, copied.RoutingKey, name+"_delay")
				}
				host := errorsOf(t, copied)[0]["host"]
				full.Expiration = "3600000"
				full.Headers = amqp.Table{
					"x-processing-attempts": int32(2),
					"trace":                 "00-1", "nested": amqp.Table{"n": int16(7)},
					"x-reprise-attempts": int64(2), "x-reprise-queue": name, "x-reprise-exchange": "", "x-reprise-routing-key": name,
					"x-reprise-first-failed": began,
					"x-reprise-errors": []any{
						amqp.Table{"attempt": int64(2), "error": "not yet", "time": began, "host": host, "duration-ms": int64(0)},
					},
				}
				tolerant := cmp.Options{
					cmp.Comparer(func(a, b time.Time) bool { return a.Sub(b).Abs() < time.Minute }),
					cmpopts.IgnoreMapEntries(func(k string, _ any) bool { return k == "duration-ms" }),
				}
				if diff := cmp.Diff(full, wire(copied), tolerant); diff != "" {
					t.Errorf("requeued, -want +got:\n%s", diff)
				}

				// After the last permitted retry, the message is parked.
				full.Expiration, full.Headers["x-processing-attempts"] = "", int32(3)
				o.put(name, full)
				m = receive(t, q)
				must(t, q.Requeue(m.Receipt, errors.New("never")))
				parked := o.take(name + "_failed")
				full.Headers["x-processing-attempts"] = int32(4)
				full.Headers["x-reprise-attempts"] = int64(4)
				full.Headers["x-reprise-reason"] = "4 attempts made"
				full.Headers["x-reprise-errors"] = []any{
					amqp.Table{"attempt": int64(2), "error": "not yet", "time": began, "host": host, "duration-ms": int64(0)},
					amqp.Table{"attempt": int64(4), "error": "never", "time": began, "host": host, "duration-ms": int64(0)},
				}
				if diff := cmp.Diff(full, wire(parked), tolerant); diff != "" {
					t.Errorf("parked, -want +got:\n%s", diff)
				}
			})
		}
	})
}

// wire converts d to the message that was published. It omits the headers that the broker has added.
func wire(d amqp.Delivery) amqp.Publishing {
	headers := amqp.Table{}
	for k, v := range d.Headers {
		switch k {
		case "x-delivery-count": // RabbitMQ 3.10 adds it for basic.get
		default:
			headers[k] = v
		}
	}
	return amqp.Publishing{
		Headers: headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode, Priority: d.Priority,
		CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageId: d.MessageId, Timestamp: d.Timestamp,
		Type: d.Type, UserId: d.UserId, AppId: d.AppId, Body: d.Body,
	}
}

func errorsOf(t *testing.T, d amqp.Delivery) []amqp.Table {
	t.Helper()
	all, _ := d.Headers["x-reprise-errors"].([]any)
	var tables []amqp.Table
	for _, e := range all {
		tables = append(tables, e.(amqp.Table))
	}
	if len(tables) == 0 {
		t.Fatalf("x-reprise-errors not found in %v", d.Headers)
	}
	return tables
}

// The failed queue is not part of the original design. It does not affect the queues that the original client declares.
func TestParkStoresReason(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		name := testkit.Name(t, "staking")
		q := open(t, b.URL, name, staking.Config{Design: short("quorum")})
		o := newOriginal(t, b.URL, name, "quorum", time.Second)
		o.send("nonsense")
		m := receive(t, q)
		must(t, q.Park(m.Receipt, errors.New("cannot be read")))
		d := o.take(name + "_failed")
		h := topology.CountUp{Header: "x-processing-attempts"}.Read(topology.Delivery{Queue: name, Headers: topology.Table(d.Headers)})
		if h.Attempts != 1 || errorsOf(t, d)[0]["error"] != "cannot be read" || d.Expiration != "" {
			t.Errorf("headers of the parked message: got %v, want 1 attempt with the error \"cannot be read\"", d.Headers)
		}
	})
}
