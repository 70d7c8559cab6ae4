package cli

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// dependency is a database that the process needs.
type dependency struct {
	kind    string // archive, ledger or duplicates
	name    string // the database, without a password
	healthy func(context.Context) error
}

// ask asks all databases at once how they are. ctx needs a deadline.
func (h *health) ask(ctx context.Context) []error {
	errs := make([]error, len(h.stores))
	var asking sync.WaitGroup
	for i, s := range h.stores {
		asking.Go(func() { errs[i] = s.healthy(ctx) })
	}
	asking.Wait()
	return errs
}

// unusable lists the databases that cannot be used, and why.
func (h *health) unusable(ctx context.Context) (wrong []string) {
	for i, err := range h.ask(ctx) {
		if err != nil {
			wrong = append(wrong, h.stores[i].kind+" "+h.stores[i].name+": "+wrongWithStore(err))
		}
	}
	return wrong
}

// wrongWithStore returns the text of an error without the prefix that names the store.
func wrongWithStore(err error) string {
	text := oneLine(textOf(err))
	for _, said := range []string{"failed: ", "asking the archive: ", "ledger: ", "idempotent: "} {
		text = strings.TrimPrefix(text, said)
	}
	return text
}

// watching is how often the databases are asked for the log and the metrics.
const watching = 2 * time.Second

// watch asks the databases until the returned function is called. It logs when a database
// becomes unavailable and when it is available again, and sets the metric.
func (h *health) watch(log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(watching)
		defer ticker.Stop()
		down := map[string]bool{} // by kind and name
		for {
			select {
			case <-ticker.C:
				h.look(ctx, down, log)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

func (h *health) look(ctx context.Context, down map[string]bool, log *slog.Logger) {
	asking, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	errs := h.ask(asking)
	if ctx.Err() != nil {
		return
	}
	broken := map[string]bool{} // by kind
	for i, err := range errs {
		s := h.stores[i]
		key := s.kind + " " + s.name
		switch {
		case errors.Is(err, errNotOpen) && !down[key]:
			log.Warn("store not open yet", "store", s.kind, "database", s.name)
		case err != nil && !down[key]:
			log.Error("store unavailable", "store", s.kind, "database", s.name, "error", wrongWithStore(err))
		case err == nil && down[key]:
			log.Info("store available again", "store", s.kind, "database", s.name)
		}
		down[key] = err != nil
		broken[s.kind] = broken[s.kind] || err != nil
	}
	for kind, broken := range broken {
		h.metrics.Store(kind, !broken)
	}
}
