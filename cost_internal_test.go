package reprise

import (
	"context"
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
)

// nowhere is a channel that takes all there is to settle.
type nowhere struct{}

func (nowhere) Ack(uint64, bool) error        { return nil }
func (nowhere) Nack(uint64, bool, bool) error { return nil }
func (nowhere) Reject(uint64, bool) error     { return nil }
func (nowhere) Sync() error                   { return nil }

// unconnected returns a worker, and a session of its that has no broker.
func unconnected(b *testing.B, handler HandlerFunc) (*Worker, *session) {
	b.Helper()
	cfg := (&Config{}).withDefaults()
	addresses, err := amqpconn.ParseURL("amqp://guest@broker")
	if err != nil {
		b.Fatal(err)
	}
	client := &Client{cfg: cfg}
	client.publishing = amqpconn.NewLink(cfg.linkConfig("publish"), addresses.Rotation(), &client.tasks)
	w, err := NewWorker(client, WorkerConfig{Queue: "orders", Handler: handler})
	if err != nil {
		b.Fatal(err)
	}
	w.handling, w.settling = b.Context(), b.Context()
	s := &session{worker: w, acks: ack.New(nowhere{}), ctx: b.Context(), conn: amqpconn.Unconnected(131072)}
	return w, s
}

func sample(tag uint64) amqpconn.Incoming {
	return amqpconn.Incoming{
		Headers: amqp.Table{"tenant": "acme"}, ContentType: "application/json", MessageId: "order-00000001",
		Timestamp: time.Unix(1700000000, 0), Type: "order.placed", RoutingKey: "orders", DeliveryTag: tag,
		Body: []byte(`{"order":1,"customer":4711,"amount":"12.50","currency":"EUR"}`),
	}
}

// What a message costs in this process, from the AMQP client and back to it, when
// the handler does nothing.
func BenchmarkHandled(b *testing.B) {
	const prefetch = 200
	window := make(chan struct{}, prefetch)
	w, s := unconnected(b, func(context.Context, *Message) error {
		<-window
		return nil
	})
	s.acks.SetSpare(prefetch)
	deliveries := make(chan amqpconn.Incoming)
	ctx, cancel := context.WithCancel(b.Context())
	w.attempts.Go(func() { s.acks.Run(ctx) })
	w.attempts.Go(func() { _ = s.pump(ctx, ctx, deliveries, false) })
	b.ReportAllocs()
	var tag uint64
	for b.Loop() {
		tag++
		window <- struct{}{}
		deliveries <- sample(tag)
	}
	cancel()
	w.attempts.Wait()
}

// What a message costs that fails, from the handler to its copy, which goes nowhere: in a
// goroutine of its own, as it has in a worker, which begins with a small stack.
func BenchmarkCopied(b *testing.B) {
	failed := errors.New("payment provider: 503 Service Unavailable")
	w, s := unconnected(b, func(context.Context, *Message) error { return failed })
	w.swap = func(*delivery, *replacement) *Event { return nil }
	b.ReportAllocs()
	for b.Loop() {
		w.attempts.Go(func() {
			d := s.delivery(sample(1), time.Now())
			d.read()
			w.attempt(d, place{<-w.slots.free}, nil)
		})
		w.attempts.Wait()
	}
}
