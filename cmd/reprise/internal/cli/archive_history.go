package cli

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/archive/history"
)

// openHistory returns the history of the work queues from the database of the archive.
func (d *archiveService) openHistory(ctx context.Context) (*history.History, error) {
	var h *history.History
	err := d.db.await(ctx, d.log, "history", func() (err error) {
		h, err = history.Open(ctx, d.db.DB, history.Config{Dialect: d.db.dialect, Logger: d.log})
		return err
	})
	return h, err
}

// record records the history until ctx is canceled. Other processes with the same archive can record it at the same
// time.
func record(ctx context.Context, h *history.History, archive *failed.Archive, client *reprise.Client) {
	h.Run(ctx, history.Sources{Archive: archive, Listening: func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, history.Every/2)
		defer cancel()
		return client.Healthy(ctx)
	}})
}

// lastTimeout is the longest wait for the last statuses of stopped workers.
const lastTimeout = time.Second

// awaitLast returns when the last statuses of the workers of this process have arrived, or after lastTimeout. The
// workers stop before the archive service, and the broker delivers these statuses a moment later.
func awaitLast(list *fleet.List) {
	host, _ := os.Hostname() // the statuses contain the same host name
	own := func(w fleet.Worker) bool { return w.PID == os.Getpid() && w.Host == host }
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for end := time.Now().Add(lastTimeout); slices.ContainsFunc(list.Workers(), own) && time.Now().Before(end); {
		<-poll.C
	}
}
