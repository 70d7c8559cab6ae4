package ledger_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// In this example, a ledger detects that two published messages are missing. The example simulates the broker. In
// production, a *ledger.Management returns the figures of the broker, Ledger.Run takes the samples, and Book.Run writes the
// book.
func ExampleLedger() {
	dir, _ := os.MkdirTemp("", "ledger")
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "ledger.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	ctx := context.Background()

	book := ledger.NewBook(db, ledger.BookConfig{Dialect: store.SQLite, Clock: clock})
	// client, err := reprise.Dial(ctx, url, &reprise.Config{Observer: book})

	books, err := ledger.Open(ctx, db, ledger.Config{Dialect: store.SQLite, Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	broker := figures{"orders": {}}
	pass := func() {
		for range 4 {
			now = now.Add(15 * time.Second)
			_ = book.Write(ctx)
			_ = books.Take(ctx, ledger.Sources{Broker: broker}, []ledger.Account{{Work: []string{"orders"}}})
		}
	}
	book.Observe(reprise.Event{Kind: reprise.EventConsuming, Queue: "orders"})
	pass()

	// Ten messages are published. Seven are processed, and one is in the queue.
	broker["orders"] = ledger.Figures{Published: 10, Taken: 7, Messages: 1}
	for range 7 {
		book.Observe(reprise.Event{Kind: reprise.EventDone, Queue: "orders"})
	}
	pass()

	report, err := books.Report(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range report.Accounts {
		fmt.Printf("%s %s: in %d, done %d, ready %d, missing %d\n", a.Name, a.State, a.In, a.Done, a.Ready, a.Missing)
		for _, d := range a.Differences {
			fmt.Println(d)
			fmt.Println(d.Reasons[0])
		}
	}
	// Output:
	// orders differs: in 10, done 7, ready 1, missing 2
	// 2 messages went missing between 2026-03-01 12:01:00 UTC and 2026-03-01 12:01:15 UTC
	// not acknowledged by a worker: purged, expired, or dropped by the broker
}

// This example joins the accounts of two work queues that share a wait queue and a failed queue.
func ExampleJoin() {
	shared := []string{"cover-art-archive.retry"}
	parked := []string{"cover-art-archive.failed"}
	for _, a := range ledger.Join([]ledger.Account{
		{Work: []string{"cover-art-archive.index"}, Wait: shared, Failed: parked},
		{Work: []string{"cover-art-archive.delete"}, Wait: shared, Failed: parked},
		{Work: []string{"orders"}},
	}) {
		fmt.Println(a.Name())
	}
	// Output:
	// cover-art-archive.delete, cover-art-archive.index
	// orders
}
