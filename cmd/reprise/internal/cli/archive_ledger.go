package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/graph"
	"github.com/reprisemq/reprise/topology"
)

// The embedded broker reports current figures without a delay, which permits shorter intervals.
const (
	auditHere  = 3 * time.Second
	reportHere = time.Second
)

// observe returns an observer that also records the workers' activity for the ledger.
func (d *archiveService) observe(next reprise.Observer, embedded bool) reprise.Observer {
	if d == nil {
		return next
	}
	d.embedded = embedded
	cfg := ledger.BookConfig{Dialect: d.db.dialect, Logger: d.log}
	if embedded {
		cfg.Every = reportHere
	}
	book, err := ledger.NewBook(d.db.DB, cfg)
	if err != nil {
		d.log.Error("cannot record the activity of the workers for the ledger", "error", err)
		return next
	}
	d.book = func(ctx context.Context) {
		d.setLedgerHealth(book.Healthy)
		if err := book.Run(ctx); err != nil {
			d.log.Error("cannot add the latest results to the ledger", "error", err)
		}
	}
	return reprise.ObserverFunc(func(e reprise.Event) {
		book.Observe(e)
		next.Observe(e)
	})
}

// openLedger returns the ledger, or nil if there is no management API.
func (d *archiveService) openLedger(ctx context.Context) (*ledger.Ledger, error) {
	if d.console.Management == nil {
		return nil, nil
	}
	cfg := ledger.Config{Dialect: d.db.dialect, Logger: d.log}
	if d.embedded {
		cfg.Every = auditHere
	}
	var l *ledger.Ledger
	err := d.db.await(ctx, d.log, "ledger", func() (err error) {
		l, err = ledger.Open(ctx, d.db.DB, cfg)
		return err
	})
	if err == nil && d.book == nil {
		d.setLedgerHealth(l.Healthy)
	}
	return l, err
}

// audit takes samples until ctx is canceled.
func (d *archiveService) audit(ctx context.Context, l *ledger.Ledger, a *failed.Archive) {
	m := d.console.Management
	from := ledger.Sources{Archive: a, Broker: &ledger.Management{URL: m.URL, User: m.User, Password: m.Password, VHost: m.VHost, Client: m.Client}}
	l.Run(ctx, from, func() []ledger.Account {
		if d.accounts != nil {
			return d.accounts
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		return slices.Clone(d.discoveredAccounts)
	})
}

// addAccounts adds accounts for failed queues whose workers are unknown.
func (d *archiveService) addAccounts(failedQueues []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range failedQueues {
		if work, found := strings.CutSuffix(q, topology.FailedQueue("")); found && work != "" {
			d.discoveredAccounts = append(d.discoveredAccounts, ledger.Account{Work: []string{work}})
		}
	}
}

// accountsOf returns the accounts of workers. Workers that share queues have one account.
func accountsOf(workers []graph.Worker) []ledger.Account {
	var accounts []ledger.Account
	for _, w := range workers {
		a := ledger.Account{Work: []string{w.Queue}}
		for _, n := range graph.New([]graph.Worker{w}).Nodes {
			switch {
			case n.Kind == graph.Failed:
				a.Failed = append(a.Failed, n.Name)
			case n.Kind == graph.Wait && !strings.HasSuffix(n.Name, ".wait.*"):
				a.Wait = append(a.Wait, n.Name)
			}
		}
		accounts = append(accounts, a)
	}
	return ledger.Join(accounts)
}
