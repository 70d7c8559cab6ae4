package cli

import (
	"context"
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

// needs adds databases to ask.
func (h *health) needs(stores ...dependency) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stores = append(h.stores, stores...)
}

// ask asks all databases at once how they are. ctx needs a deadline.
func (h *health) ask(ctx context.Context) ([]dependency, []error) {
	h.mu.Lock()
	stores := h.stores
	h.mu.Unlock()
	errs := make([]error, len(stores))
	var asking sync.WaitGroup
	for i, s := range stores {
		asking.Go(func() { errs[i] = s.healthy(ctx) })
	}
	asking.Wait()
	return stores, errs
}

// unusable lists the databases that cannot be used, and why.
func (h *health) unusable(ctx context.Context) (wrong []string) {
	stores, errs := h.ask(ctx)
	for i, err := range errs {
		if err != nil {
			wrong = append(wrong, stores[i].kind+" "+stores[i].name+": "+wrongWithStore(err))
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
	stores, errs := h.ask(asking)
	if ctx.Err() != nil {
		return
	}
	up := map[string]bool{} // by kind
	for i, s := range stores {
		err := errs[i]
		was, others := down[s.kind+" "+s.name], true
		if known, found := up[s.kind]; found {
			others = known
		}
		up[s.kind] = others && err == nil
		down[s.kind+" "+s.name] = err != nil
		switch {
		case err != nil && !was:
			log.Error("store unavailable", "store", s.kind, "database", s.name, "error", wrongWithStore(err))
		case err == nil && was:
			log.Info("store available again", "store", s.kind, "database", s.name)
		}
	}
	for kind, up := range up {
		h.metrics.Store(kind, up)
	}
}
