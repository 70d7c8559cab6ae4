package history_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/archive/history"
	"github.com/reprisemq/reprise/internal/archive/store"
)

// A program records a history in the database of its archive, and reads the history of a queue.
func Example() {
	var (
		ctx     context.Context
		db      *sql.DB         // of the archive
		archive *store.Archive  // in db
		client  *reprise.Client // connected to the broker
	)
	h, err := history.Open(ctx, db, history.Config{Dialect: store.PostgreSQL})
	if err != nil {
		log.Fatal(err)
	}
	list := fleet.New(client)
	list.Observe(h.Observe)
	go func() { _ = list.Run(ctx) }()
	go h.Run(ctx, history.Sources{Archive: archive, Listening: client.Healthy})

	// Set console.Config.History to h, or read the history directly.
	s, err := h.Series(ctx, "orders", history.Hour)
	if err != nil {
		log.Fatal(err)
	}
	marks, err := h.Marks(ctx, s.Points[0].Start)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range s.Rises(marks) {
		fmt.Println(r)
	}
}
