package reprisetest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

// This example prints parked messages with their errors.
func ExampleBroker_Parked() {
	t := new(testing.T) // in a test, its argument
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Work(t, reprise.WorkerConfig{
			Queue:  "orders",
			Policy: reprise.Policy{MaxAttempts: 3},
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				return fmt.Errorf("attempt %d: no such customer", m.Attempt)
			}),
		})
		b.Publish(t, &reprise.Message{RoutingKey: "orders", Body: []byte("order 17")})
		b.Drain(t)

		for _, m := range b.Parked(t, "orders") {
			fmt.Printf("%s, after %d attempts:\n", m.Body, m.Attempt)
			for _, e := range m.Errors {
				fmt.Println(" ", e.Error)
			}
		}
	})
	// Output:
	// order 17, after 3 attempts:
	//   attempt 1: no such customer
	//   attempt 2: no such customer
	//   attempt 3: no such customer
}

// A handler can receive a message again after it has processed the message. Here, the connection fails before the broker
// receives the acknowledgement.
func ExampleBroker_LoseAcks() {
	t := new(testing.T) // in a test, its argument
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		w := b.Work(t, reprise.WorkerConfig{
			Queue:   "orders",
			Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil }),
		})
		b.LoseAcks(1)
		b.Publish(t, &reprise.Message{RoutingKey: "orders", MessageID: "17"})
		b.Drain(t)

		for _, a := range w.Attempts() {
			fmt.Println("message", a.Delivery.MessageID, "redelivered:", a.Delivery.Redelivered, "error:", a.Err)
		}
	})
	// Output:
	// message 17 redelivered: false error: <nil>
	// message 17 redelivered: true error: <nil>
}

// If a publisher does not receive the confirm, it publishes the message again. The duplicate has the same message ID.
func ExampleBroker_LoseConfirms() {
	t := new(testing.T) // in a test, its argument
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, topology.Topology{Queues: []topology.Queue{{Name: "orders"}}})
		client := b.Client(t, nil)
		b.LoseConfirms(1)
		m := &reprise.Message{RoutingKey: "orders", MessageID: "17"}
		for err := client.Publish(t.Context(), m); err != nil; err = client.Publish(t.Context(), m) {
			fmt.Println("not known:", errors.Is(err, reprise.ErrUnconfirmed))
		}
		for _, m := range b.Messages(t, "orders") {
			fmt.Println("message", m.MessageID)
		}
	})
	// Output:
	// not known: true
	// message 17
	// message 17
}

// In this example, the broker becomes unreachable for an hour while a handler runs.
func ExampleBroker_Cut() {
	t := new(testing.T) // in a test, its argument
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		w := b.Work(t, reprise.WorkerConfig{
			Queue: "orders",
			Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
				time.Sleep(time.Minute)
				return nil
			}),
		})
		b.Publish(t, &reprise.Message{RoutingKey: "orders"})
		b.Refuse(time.Hour)
		b.Cut()
		b.Drain(t)

		for _, a := range w.Attempts() {
			fmt.Println("at", a.Began.UTC().Format("15:04"), "redelivered:", a.Delivery.Redelivered)
		}
	})
	// Output:
	// at 00:00 redelivered: false
	// at 01:00 redelivered: true
}

// This example connects a plain AMQP client, without package reprise.
func ExampleBroker_DialContext() {
	t := new(testing.T) // in a test, its argument
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		conn, err := amqp.DialConfig(b.URL(), amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
			return b.DialContext(t.Context(), network, addr)
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		q, err := ch.QueueDeclare("orders", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Publish(t, &reprise.Message{RoutingKey: q.Name, Body: []byte("order 17")})
		d, _, err := ch.Get(q.Name, true)
		fmt.Println(string(d.Body), err)
	})
	// Output:
	// order 17 <nil>
}

// This example advances the virtual time, and inspects the worker between two events.
func ExampleBroker_Advance() {
	t := new(testing.T) // in a test, its argument
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		w := b.Work(t, reprise.WorkerConfig{
			Queue: "orders",
			Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
				return reprise.RetryAfter(time.Hour, errors.New("the till is closed"))
			}),
		})
		b.Publish(t, &reprise.Message{RoutingKey: "orders"})
		for range 3 {
			fmt.Println(len(w.Attempts()), "attempts")
			b.Advance(time.Hour)
		}
	})
	// Output:
	// 1 attempts
	// 2 attempts
	// 3 attempts
}
