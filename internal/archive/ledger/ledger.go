package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
)

// Ledger compares the figures of the broker, the workers and the archive. A Ledger is safe for concurrent use. Only one
// Ledger at a time should take samples of an account.
type Ledger struct {
	database
	cfg     Config
	changes chan struct{}   // semaphore for changes to accounts
	verdict map[string]bool // whether an account had a discrepancy in the last report, for the log
}

// Archive is the part of *store.Archive that a Ledger uses.
type Archive interface {
	Queues(ctx context.Context) ([]store.QueueSummary, error)
	SettleOutcomes(ctx context.Context, queues []string, at time.Time) error
}

// Sources contains the sources of the samples. Broker is required.
type Sources struct {
	Broker  Broker
	Archive Archive // nil if failed messages stay in the failed queue
}

// Open returns the ledger in db. It creates missing tables, and returns an error if a newer version created the
// tables. The caller must close db.
func Open(ctx context.Context, db *sql.DB, cfg Config) (*Ledger, error) {
	cfg = cfg.withDefaults()
	l := &Ledger{database: newDatabase(db, cfg.Dialect, cfg.Prefix), cfg: cfg, changes: make(chan struct{}, 1), verdict: map[string]bool{}}
	if err := l.db.Create(ctx, tables); err != nil {
		return nil, fmt.Errorf("cannot open the ledger in %s: %w", cfg.Dialect, err)
	}
	return l, nil
}

// Config returns the configuration, including the defaults.
func (l *Ledger) Config() Config { return l.cfg }

// Run calls accounts and takes a sample of each account every Config.Every, until ctx is done. It logs discrepancies and
// errors. After an error it continues with the next sample. Call it only once.
func (l *Ledger) Run(ctx context.Context, from Sources, accounts func() []Account) {
	ticker := time.NewTicker(l.cfg.Every)
	defer ticker.Stop()
	wrong := ""
	for {
		err := l.Take(ctx, from, accounts())
		if err == nil {
			err = l.logChanges(ctx)
		}
		switch {
		case err == nil:
			wrong = ""
		case ctx.Err() == nil && err.Error() != wrong:
			wrong = err.Error()
			l.cfg.Logger.Warn("cannot audit", "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// logChanges logs new discrepancies, and accounts that no longer have a discrepancy.
func (l *Ledger) logChanges(ctx context.Context) error {
	report, err := l.Report(ctx)
	if err != nil {
		return err
	}
	for _, a := range report.Accounts {
		switch {
		case a.State == Differs && !l.verdict[a.Name]:
			for _, d := range a.Differences {
				what, n := "messages are missing", d.Messages
				if n < 0 {
					what, n = "more messages than were published", -n
				}
				l.cfg.Logger.Error(what, "account", a.Name, "messages", n, "since", d.Since, "until", d.Until)
			}
		case a.State == Balanced && l.verdict[a.Name]:
			l.cfg.Logger.Info("account is balanced again", "account", a.Name)
		}
		if a.State == Differs || a.State == Balanced {
			l.verdict[a.Name] = a.State == Differs
		}
	}
	return nil
}

// Accept restarts an account after an operator has examined and accepted the current discrepancy. From then on, reports
// show the operator and the reason. Accept returns ErrNoAccount if the account does not exist, ErrTooEarly if it has
// too few samples for a restart, and an error if reason is empty.
func (l *Ledger) Accept(ctx context.Context, name string, who failed.Actor, reason string) error {
	if reason == "" {
		return errors.New("reason must not be empty (describe the discrepancy)")
	}
	if err := l.acquire(ctx); err != nil {
		return err
	}
	defer l.release()
	known, err := l.accounts(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(known, func(k account) bool { return k.name == name })
	if i < 0 {
		return fmt.Errorf("%w: %s", ErrNoAccount, brief.Quoted(name))
	}
	r := &known[i]
	newest, err := l.last(ctx, name, 3)
	if err != nil {
		return err
	}
	old := *r
	r.opened, r.opening = time.Time{}, opening{}
	if old.opened.IsZero() || !r.open(newest) {
		return fmt.Errorf("%w of account %s (try again in %s)", ErrTooEarly, brief.Quoted(name), 2*l.cfg.Every)
	}
	n := r.terms.missing(&old.terms)
	r.note = fmt.Sprintf("restarted at %s by %s, with a difference of %d: %s", l.cfg.Clock().UTC().Format(time.RFC3339), who, n, reason)
	return l.begin(ctx, r)
}

// Errors of Accept.
var (
	ErrNoAccount = errors.New("account not found")
	ErrTooEarly  = errors.New("not enough samples for a restart")
)
