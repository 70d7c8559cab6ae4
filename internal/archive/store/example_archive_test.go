package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// exampleArchive returns an archive in a new file, with three failures.
func exampleArchive() (*store.Archive, func()) {
	dir, err := os.MkdirTemp("", "reprise")
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "failed.db"))
	if err != nil {
		log.Fatal(err)
	}
	archive, err := store.Open(context.Background(), db, store.Config{Dialect: store.SQLite})
	if err != nil {
		log.Fatal(err)
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var arrivals []failed.Arrived
	for i, text := range []string{"order 17: card declined", "order 18: card declined", "order 19: no such customer"} {
		arrivals = append(arrivals, failed.Arrived{Message: failed.Message{
			FailedQueue: "orders.failed", Error: text, Attempts: 10, LastFailed: at.Add(time.Duration(i) * time.Minute),
			Content: failed.Content{
				Body:    fmt.Appendf(nil, `{"order": %d}`, 17+i),
				Headers: topology.Table{"tenant": "blue"},
			},
		}})
	}
	if _, err := archive.Ingest(context.Background(), arrivals); err != nil {
		log.Fatal(err)
	}
	return archive, func() { db.Close(); os.RemoveAll(dir) }
}

func ExampleArchive_List() {
	ctx := context.Background()
	archive, end := exampleArchive()
	defer end()

	filter := failed.Filter{Text: "declined", Headers: map[string]string{"tenant": "blue"}}
	for page := (store.Page{Size: 1}); ; {
		messages, next, err := archive.List(ctx, filter, page)
		if err != nil {
			log.Fatal(err)
		}
		for _, m := range messages {
			fmt.Println(m.ID, m.Queue, m.Attempts, m.Error)
		}
		if next == "" {
			break
		}
		page.After = next
	}
	// Output:
	// 2 orders 10 order 18: card declined
	// 1 orders 10 order 17: card declined
}

func ExampleArchive_Groups() {
	ctx := context.Background()
	archive, end := exampleArchive()
	defer end()

	groups, _, err := archive.Groups(ctx, store.GroupFilter{State: failed.Failed, MostFailed: true}, store.Page{})
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range groups {
		fmt.Printf("%d × %s, last at %s\n", g.Counts.Failed, g.Text, g.Last.Format(time.TimeOnly))
	}
	// Output:
	// 2 × order *: card declined, last at 12:01:00
	// 1 × order *: no such customer, last at 12:02:00
}

func ExampleArchive_Edit() {
	ctx := context.Background()
	archive, end := exampleArchive()
	defer end()

	m, err := archive.Get(ctx, 3)
	if err != nil {
		log.Fatal(err)
	}
	edited := m.Content // the original stays
	edited.Body = []byte(`{"order": 19, "customer": "guest"}`)
	if err := archive.Edit(ctx, m.ID, m.Revision, edited, "cli:ada@shop"); err != nil {
		log.Fatal(err)
	}
	if m, err = archive.Get(ctx, 3); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("failed as %s\nreplayed as %s\n", m.Body, m.Current().Body)
	// Output:
	// failed as {"order": 19}
	// replayed as {"order": 19, "customer": "guest"}
}

func ExampleArchive_Discard() {
	ctx := context.Background()
	archive, end := exampleArchive()
	defer end()

	declined := failed.Filter{Text: "card declined"}
	n, err := archive.Discard(ctx, declined, "the customers have paid by now", "cli:ada@shop")
	fmt.Println(n, "discarded", err)
	n, err = archive.Restore(ctx, failed.Filter{IDs: []failed.ID{1}}, "cli:grace@shop")
	fmt.Println(n, "restored", err)

	acts, _, err := archive.Acts(ctx, store.ActFilter{}, store.Page{})
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range acts {
		fmt.Println(a.Actor, a.Verb, a.Subject, a.Details["messages"], a.Details["reason"])
	}
	// Output:
	// 2 discarded <nil>
	// 1 restored <nil>
	// cli:grace@shop restore message/1 1 <nil>
	// cli:ada@shop discard  2 the customers have paid by now
}

// A Replayer records each message as sent after the publisher confirm, not before.
func ExampleArchive_BeginReplay() {
	ctx := context.Background()
	archive, end := exampleArchive()
	defer end()

	replay, err := archive.BeginReplay(ctx, failed.Plan{Filter: failed.Filter{Queue: "orders"}}, "cli:ada@shop")
	if err != nil {
		log.Fatal(err)
	}
	next, err := archive.UnsentOf(ctx, replay.ID, 1)
	if err != nil {
		log.Fatal(err)
	}
	// Publish next[0], and wait for the publisher confirm.
	if err := archive.Sent(ctx, replay.ID, []failed.ID{next[0].ID}); err != nil {
		log.Fatal(err)
	}
	if err := archive.EndReplay(ctx, replay.ID, failed.ReplayCancelled, "changed my mind", "cli:ada@shop"); err != nil {
		log.Fatal(err)
	}
	queues, err := archive.Queues(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%+v\n", queues[0].Counts)
	// Output:
	// {Failed:2 Replaying:0 Replayed:1 Discarded:0}
}

func ExampleMessage_Redact() {
	m := &failed.Message{Content: failed.Content{
		Body:    []byte(`{"order": 17, "card": {"number": "4000 1234", "name": "Ada"}}`),
		Headers: topology.Table{"authorization": "Bearer s3cret"},
	}}
	shown := m.Redact([]failed.Rule{{Header: "Authorization"}, {Path: "card.number"}})
	fmt.Println(shown.Headers["authorization"], string(shown.Body))
	// Output:
	// [redacted] {"order": 17, "card": {"number": "[redacted]", "name": "Ada"}}
}

// The export of one archive can be imported into another archive. Repeated imports have no effect.
func ExampleArchive_Import() {
	ctx := context.Background()
	archive, end := exampleArchive()
	defer end()
	another, end := exampleArchive()
	defer end()

	var lines strings.Builder
	n, err := archive.Export(ctx, failed.Filter{Text: "declined"}, &lines)
	fmt.Println(n, "exported", err)
	n, err = another.Import(ctx, strings.NewReader(lines.String()), "cli:ada@shop")
	fmt.Println(n, "imported", err)
	n, err = another.Import(ctx, strings.NewReader(lines.String()), "cli:ada@shop")
	fmt.Println(n, "imported", err)
	// Output:
	// 2 exported <nil>
	// 2 imported <nil>
	// 0 imported <nil>
}
