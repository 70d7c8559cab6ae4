package idempotent_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/idempotent"
)

// A handler with the middleware and a store in memory. The second message is a duplicate of the first message, and the
// third is not.
func ExampleMiddleware() {
	once, err := idempotent.Middleware(new(idempotent.Memory), idempotent.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	charge := once(reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
		fmt.Printf("charged for %s\n", m.Body)
		return nil
	}))

	for _, m := range []reprise.Delivery{
		{Message: reprise.Message{MessageID: "7f3a", Body: []byte("coffee")}, Queue: "orders"},
		{Message: reprise.Message{MessageID: "7f3a", Body: []byte("coffee")}, Queue: "orders"},
		{Message: reprise.Message{MessageID: "81c0", Body: []byte("tea")}, Queue: "orders"},
	} {
		fmt.Println(charge.Handle(context.Background(), &m))
	}
	// Output:
	// charged for coffee
	// <nil>
	// <nil>
	// charged for tea
	// <nil>
}

// The effect (a row in bookings) and the key share one transaction. The first attempt fails after its effect, so the
// database rolls back the effect and the key.
func ExampleTx() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection has a separate in-memory database
	if _, err := db.Exec(`CREATE TABLE bookings (item TEXT)`); err != nil {
		fmt.Println(err)
		return
	}
	store, err := idempotent.OpenSQL(ctx, db, idempotent.SQLConfig{Dialect: idempotent.SQLite})
	if err != nil {
		fmt.Println(err)
		return
	}

	book, err := idempotent.Tx(store, idempotent.TxConfig{}, func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO bookings VALUES (?)`, m.Body); err != nil {
			return err
		}
		if m.Attempt == 1 {
			return errors.New("no paper in the printer")
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	for attempt := 1; attempt <= 3; attempt++ {
		m := reprise.Delivery{Message: reprise.Message{MessageID: "7f3a", Body: []byte("coffee")}, Queue: "orders", Attempt: attempt}
		err := book.Handle(ctx, &m)
		var rows int
		if err := db.QueryRow(`SELECT count(*) FROM bookings`).Scan(&rows); err != nil {
			fmt.Println(err)
		}
		fmt.Printf("attempt %d: %v, %d bookings\n", attempt, err, rows)
	}
	// Output:
	// attempt 1: no paper in the printer, 0 bookings
	// attempt 2: <nil>, 1 bookings
	// attempt 3: <nil>, 1 bookings
}

// If the publisher does not set an id, another value that is unique for each intended effect can be the key.
func ExampleConfig_key() {
	once, err := idempotent.Middleware(new(idempotent.Memory), idempotent.Config{
		Key: func(m *reprise.Delivery) string {
			order, _ := m.Headers["order"].(string)
			event, _ := m.Headers["event"].(string)
			if order == "" || event == "" {
				return "" // no key
			}
			return order + " " + event
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := once(reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
		fmt.Println(m.Headers["order"], m.Headers["event"])
		return nil
	}))

	for _, headers := range []map[string]any{
		{"order": "17", "event": "paid"},
		{"order": "17", "event": "paid"},
		{"order": "17", "event": "sent"},
		{"order": "18"},
	} {
		if err := h.Handle(context.Background(), &reprise.Delivery{Message: reprise.Message{Headers: headers}, Queue: "events"}); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// 17 paid
	// 17 sent
	// idempotent: key of message is empty (set a message id in the publisher, or configure another key)
}

// TxJSON decodes the body. A message whose body cannot be decoded is parked.
func ExampleTxJSON() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	store, err := idempotent.OpenSQL(ctx, db, idempotent.SQLConfig{Dialect: idempotent.SQLite})
	if err != nil {
		fmt.Println(err)
		return
	}
	type order struct{ Item string }
	book, err := idempotent.TxJSON(store, idempotent.TxConfig{}, func(_ context.Context, _ *sql.Tx, o order, m *reprise.Delivery) error {
		fmt.Println(m.MessageID, "books", o.Item)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(book.Handle(ctx, &reprise.Delivery{Message: reprise.Message{MessageID: "7f3a", Body: []byte(`{"item": "coffee"}`)}, Queue: "orders"}))
	fmt.Println(book.Handle(ctx, &reprise.Delivery{Message: reprise.Message{MessageID: "7f3a", Body: []byte(`{"item": "coffee"}`)}, Queue: "orders"}))
	fmt.Println(book.Handle(ctx, &reprise.Delivery{Message: reprise.Message{MessageID: "81c0", Body: []byte(`coffee`)}, Queue: "orders"}) != nil)
	// Output:
	// 7f3a books coffee
	// <nil>
	// <nil>
	// true
}
