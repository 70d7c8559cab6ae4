package health

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/archive"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/prommetrics"
)

// Store is a database that the process requires.
type Store struct {
	Kind    string // archive, ledger, duplicates or outbox
	Name    string // name of the database, without a password
	Healthy func(context.Context) error
	Record  func(*prommetrics.Metrics) // records figures of the last check; optional
}

// ask checks all databases concurrently. The context must have a deadline.
func (h *Checks) ask(ctx context.Context) []error {
	errs := make([]error, len(h.stores))
	var asking sync.WaitGroup
	for i, s := range h.stores {
		asking.Go(func() { errs[i] = s.Healthy(ctx) })
	}
	asking.Wait()
	return errs
}

// unusable lists the unavailable databases with the reasons.
func (h *Checks) unusable(ctx context.Context) (wrong []string) {
	for i, err := range h.ask(ctx) {
		if err != nil {
			wrong = append(wrong, h.stores[i].Kind+" "+h.stores[i].Name+": "+wrongWithStore(err))
		}
	}
	return wrong
}

// wrongWithStore formats an error without the prefix that names the store.
func wrongWithStore(err error) string {
	return strings.TrimPrefix(terminal.OneLine(exit.Text(err)), "idempotent: ")
}

// watching is the interval of the checks for the log and the metrics.
const watching = 2 * time.Second

// watch checks the databases until the returned function is called. It logs when a database becomes unavailable or
// available again, and sets the metric.
func (h *Checks) watch(log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(watching)
		defer ticker.Stop()
		states := map[string]storeState{} // by kind and name
		for {
			select {
			case <-ticker.C:
				h.look(ctx, states, log)
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

// storeState is the last logged state of a database.
type storeState int

const (
	available storeState = iota
	notOpen
	unavailable
)

func (h *Checks) look(ctx context.Context, states map[string]storeState, log *slog.Logger) {
	asking, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	errs := h.ask(asking)
	if ctx.Err() != nil {
		return
	}
	broken := map[string]bool{} // by kind
	for i, err := range errs {
		s := h.stores[i]
		key := s.Kind + " " + s.Name
		is := available
		switch {
		case errors.Is(err, archive.ErrNotOpen):
			is = notOpen
		case err != nil:
			is = unavailable
		}
		if was := states[key]; was != is {
			switch is {
			case notOpen:
				log.Warn("store not open yet", "store", s.Kind, "database", s.Name)
			case unavailable:
				log.Error("store unavailable", "store", s.Kind, "database", s.Name, "error", wrongWithStore(err))
			default:
				log.Info("store available again", "store", s.Kind, "database", s.Name)
			}
			states[key] = is
		}
		broken[s.Kind] = broken[s.Kind] || err != nil
		if s.Record != nil {
			s.Record(h.Metrics)
		}
	}
	for kind, broken := range broken {
		h.Metrics.Store(kind, !broken)
	}
}
