package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/outbox"
	"github.com/reprisemq/reprise/topology"
)

// A payment is taken once, and its event is published once for each payment, also if the process is killed at any time: the
// payment, the key of the message and the event are in one transaction. The event keeps its id if it is published again, so its
// consumer can use package idempotent, too.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	check(err)
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection has a separate in-memory database
	_, err = db.Exec(`CREATE TABLE payments (invoice TEXT)`)
	check(err)
	store, err := idempotent.OpenSQL(ctx, db, idempotent.SQLConfig{Dialect: idempotent.SQLite})
	check(err)
	box, err := outbox.Open(ctx, db, outbox.Config{Dialect: outbox.SQLite})
	check(err)

	pay, err := idempotent.Tx(store, idempotent.TxConfig{}, func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO payments VALUES (?)`, m.Body); err != nil {
			return err
		}
		event := reprise.Message{RoutingKey: "paid", MessageID: "paid-" + m.MessageID, Body: m.Body}
		return box.Insert(ctx, tx, &outbox.Message{Message: event})
	})
	check(err)
	for range 2 { // the second delivery is a duplicate
		check(pay.Handle(ctx, &reprise.Delivery{Message: reprise.Message{MessageID: "17", Body: []byte("invoice 17")}, Queue: "payments"}))
	}

	b, err := broker.New(broker.Config{})
	check(err)
	defer b.Shutdown(ctx)
	client, err := reprise.Dial(ctx, "amqp://guest:guest@broker", &reprise.Config{Dial: b.DialContext})
	check(err)
	defer client.Close(ctx)
	check(client.Declare(ctx, topology.Buckets{}.Topology("paid")))
	relay, err := outbox.NewRelay(box, client, outbox.RelayConfig{})
	check(err)
	running, stop := context.WithCancel(ctx)
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue: "paid",
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			fmt.Printf("%s: %s\n", m.MessageID, m.Body)
			stop() // this is the only event
			return nil
		}),
	})
	check(err)
	relayed := make(chan error)
	go func() { relayed <- relay.Run(running) }()
	check(worker.Run(running))
	check(<-relayed)
	// Output:
	// paid-17: invoice 17
}

// A reminder is scheduled, listed, moved and canceled.
func ExampleBox_Cancel() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	check(err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	box, err := outbox.Open(ctx, db, outbox.Config{Dialect: outbox.SQLite})
	check(err)
	reminder := reprise.Message{RoutingKey: "reminders", MessageID: "reminder-17"}
	check(box.Schedule(ctx, &outbox.Message{Message: reminder, In: 24 * time.Hour}))

	mine := outbox.Filter{MessageID: "reminder-17"}
	rows, err := box.List(ctx, mine)
	check(err)
	moved, err := box.Move(ctx, mine, rows[0].Due.Add(time.Hour))
	check(err)
	canceled, err := box.Cancel(ctx, mine)
	check(err)
	fmt.Println(rows[0].RoutingKey, moved.Done, canceled.Done)
	// Output:
	// reminders 1 1
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
