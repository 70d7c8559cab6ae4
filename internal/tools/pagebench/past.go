package main

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/reprisemq/reprise/internal/archive/history"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
)

// pastQueues is the number of queues that have a history.
const pastQueues = 50

// fillPast records the history of pastQueues queues and of the failures in the archive.
func fillPast(ctx context.Context, db *sql.DB, d store.Dialect, a *store.Archive) (*history.History, error) {
	h, err := history.Open(ctx, db, history.Config{Dialect: d})
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for i := range pastQueues {
		s := protocol.WorkerStatus{ID: fmt.Sprint("pagebench-", i, now.Unix()), Queue: fmt.Sprint("queue-", i), Started: now.Add(-8 * 24 * time.Hour), Sent: now}
		s.Counts = protocol.Counts{Succeeded: 10_000_000, Failed: 100_000, Retried: 90_000, Parked: 10_000}
		for j := range 12 {
			s.Took.Buckets[4+j] = 1_000_000
		}
		h.Observe(s)
	}
	if _, err := h.AddMark(ctx, history.Mark{Text: "v2.4", At: now.Add(-30 * time.Minute), By: "pagebench"}); err != nil {
		return nil, err
	}
	begun := time.Now()
	err = h.Record(ctx, history.Sources{Archive: a})
	log.Printf("%s: history recorded in %s", d, time.Since(begun).Round(time.Millisecond))
	return h, err
}
