package reprise_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/topology"
)

// connect starts a broker in this process, declares the queue, and returns the broker and a client. Most examples in this
// file use it.
func connect(ctx context.Context, queue topology.Queue) (*broker.Broker, *reprise.Client) {
	b, err := broker.New(broker.Config{})
	if err != nil {
		panic(err)
	}
	client, err := reprise.Dial(ctx, "amqp://guest:guest@broker/", &reprise.Config{Dial: b.DialContext})
	if err != nil {
		panic(err)
	}
	if err := client.Declare(ctx, topology.Topology{Queues: []topology.Queue{queue}}); err != nil {
		panic(err)
	}
	return b, client
}

// Each kind of failure has a distinct error. After ErrUnconfirmed or ErrNacked, the message may have been stored; after any
// other error, it was not.
func ExampleClient_Publish() {
	ctx := context.Background()
	b, client := connect(ctx, topology.Queue{Name: "orders"})
	defer b.Shutdown(ctx)
	defer client.Close(ctx)

	for _, queue := range []string{"orders", "odrers"} {
		err := client.Publish(ctx, &reprise.Message{RoutingKey: queue, Body: []byte("order 17")})
		if err == nil {
			fmt.Println("stored")
		} else if unroutable, ok := errors.AsType[*reprise.UnroutableError](err); ok {
			fmt.Println("unroutable:", unroutable.RoutingKey)
		} else if errors.Is(err, reprise.ErrUnconfirmed) {
			fmt.Println("possibly stored: publish it again with the same MessageID")
		} else if errors.Is(err, reprise.ErrBlocked) || errors.Is(err, reprise.ErrStalled) || errors.Is(err, reprise.ErrDisconnected) {
			fmt.Println("not stored: publish it again later")
		} else {
			fmt.Println("not stored:", err)
		}
	}
	// Output:
	// stored
	// unroutable: odrers
}

// A program can publish failed messages again. This example first creates the missing queue.
func ExampleClient_PublishBatch() {
	ctx := context.Background()
	b, client := connect(ctx, topology.Queue{Name: "orders"})
	defer b.Shutdown(ctx)
	defer client.Close(ctx)

	batch := []*reprise.Message{
		{RoutingKey: "orders", Body: []byte("order 1")},
		{RoutingKey: "returns", Body: []byte("return 1")},
		{RoutingKey: "orders", Body: []byte("order 2")},
	}
	err := client.PublishBatch(ctx, batch)
	failed, ok := errors.AsType[*reprise.BatchError](err)
	if !ok {
		fmt.Println("all are stored")
		return
	}
	var again []*reprise.Message
	for _, f := range failed.Failed {
		m := batch[f.Index]
		fmt.Printf("%s: %v\n", m.Body, f.Err)
		again = append(again, m)
	}
	if err := client.Declare(ctx, topology.Topology{Queues: []topology.Queue{{Name: "returns"}}}); err != nil {
		fmt.Println(err)
	}
	fmt.Println("again:", client.PublishBatch(ctx, again))
	// Output:
	// return 1: reprise: unroutable: queue "returns" does not exist (312 NO_ROUTE)
	// again: <nil>
}

// BeforePublish adds the tenant to all messages of this program.
func ExampleConfig_beforePublish() {
	ctx := context.Background()
	b, err := broker.New(broker.Config{})
	if err != nil {
		panic(err)
	}
	defer b.Shutdown(ctx)
	client, err := reprise.Dial(ctx, "amqp://guest:guest@broker/", &reprise.Config{
		Dial: b.DialContext,
		BeforePublish: func(_ context.Context, m *reprise.Message) error {
			if m.Type == "" {
				return fmt.Errorf("%w: a message needs a type", reprise.ErrInvalidMessage)
			}
			m.Headers = map[string]any{"tenant": "acme"}
			return nil
		},
	})
	if err != nil {
		panic(err)
	}
	defer client.Close(ctx)
	if err := client.Declare(ctx, topology.Topology{Queues: []topology.Queue{{Name: "orders"}}}); err != nil {
		panic(err)
	}
	fmt.Println(client.PublishBatch(ctx, []*reprise.Message{
		{RoutingKey: "orders", MessageID: "1"},
		{RoutingKey: "orders", MessageID: "2", Type: "order.placed"},
	}))
	err = client.Peek(ctx, "orders", 2, func(m *reprise.Delivery) { fmt.Println(m.MessageID, m.Headers["tenant"]) })
	fmt.Println(err)
	// Output:
	// reprise: 1 of 2 messages failed: message 0 (1): invalid message: a message needs a type
	// 2 acme
	// <nil>
}

// A publisher that may start before the worker declares the queues of the worker. A repeated declaration has no effect.
func ExampleClient_Declare() {
	ctx := context.Background()
	b, client := connect(ctx, topology.Queue{Name: "orders"})
	defer b.Shutdown(ctx)
	defer client.Close(ctx)

	for range 2 {
		fmt.Println(client.Declare(ctx, topology.Buckets{}.Topology("invoices")))
	}
	for _, q := range b.Queues() {
		fmt.Println(q.Name)
	}
	// Output:
	// <nil>
	// <nil>
	// invoices
	// invoices.failed
	// orders
}

// A program reads the first messages of a queue without removing them.
func ExampleClient_Peek() {
	ctx := context.Background()
	b, client := connect(ctx, topology.Queue{Name: "orders"})
	defer b.Shutdown(ctx)
	defer client.Close(ctx)
	for _, body := range []string{"order 1", "order 2", "order 3"} {
		if err := client.Publish(ctx, &reprise.Message{RoutingKey: "orders", Body: []byte(body)}); err != nil {
			fmt.Println(err)
		}
	}

	err := client.Peek(ctx, "orders", 2, func(m *reprise.Delivery) { fmt.Printf("%s\n", m.Body) })
	fmt.Println(err)
	fmt.Println(client.Depth(ctx, "orders"))
	// Output:
	// order 1
	// order 2
	// <nil>
	// 3 <nil>
}

// A reminder for tomorrow waits in the broker, and is as durable as any other message.
func ExampleClient_PublishIn() {
	ctx := context.Background()
	b, client := connect(ctx, topology.Queue{Name: "reminders"})
	defer b.Shutdown(ctx)
	defer client.Close(ctx)

	err := client.PublishIn(ctx, 24*time.Hour, &reprise.Message{RoutingKey: "reminders", Body: []byte("invoice 17 is due")})
	fmt.Println(err)
	for _, q := range b.Queues() {
		if q.Ready > 0 {
			fmt.Println("waiting in", q.Name)
		}
	}
	// Output:
	// <nil>
	// waiting in reminders.level.17
}

// A client of a cluster tries the nodes one after the other. In this example, only one node runs.
func ExampleDial() {
	ctx := context.Background()
	b, err := broker.New(broker.Config{Users: map[string]string{"shop": "s3cret"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Shutdown(ctx)

	client, err := reprise.Dial(ctx, "amqp://shop:s3cret@rabbit1,rabbit2,rabbit3:5673/", &reprise.Config{
		Name: "shop",
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr != "rabbit3:5673" {
				return nil, errors.New("connection refused")
			}
			fmt.Println("connecting to", addr)
			return b.DialContext(ctx, network, addr)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Close(ctx))
	// Output:
	// connecting to rabbit3:5673
	// connecting to rabbit3:5673
	// <nil>
}

// A failed readiness probe stops requests to a program that cannot publish.
func ExampleClient_Healthy() {
	ctx := context.Background()
	b, client := connect(ctx, topology.Queue{Name: "orders"})
	defer client.Close(ctx)

	ready := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		if err := client.Healthy(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	probe := func() int {
		w := httptest.NewRecorder()
		ready(w, httptest.NewRequest(http.MethodGet, "/ready", nil))
		return w.Code
	}
	fmt.Println(probe())
	_ = b.Shutdown(ctx)
	fmt.Println(probe())
	// Output:
	// 200
	// 503
}

// A program can validate the configured URL before it connects. The error never contains a password.
func ExampleCheckURL() {
	for _, url := range []string{
		"amqps://shop:s3cret@rabbit1,rabbit2:5673/shop?heartbeat=5",
		"amqp://shop:s3c/ret@rabbit1",
		"rabbit1:5672",
	} {
		if err := reprise.CheckURL(url); err != nil {
			fmt.Println("invalid")
		} else {
			fmt.Println("valid")
		}
	}
	// Output:
	// valid
	// invalid
	// invalid
}
