package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/params"
)

// archived is an archive with given figures. It records the times up to which outcomes are settled.
type archived struct {
	store.QueueSummary
	settled []time.Time
}

func (a *archived) Queues(context.Context) ([]store.QueueSummary, error) {
	return []store.QueueSummary{a.QueueSummary}, nil
}

func (a *archived) SettleOutcomes(_ context.Context, _ []string, at time.Time) error {
	a.settled = append(a.settled, at)
	return nil
}

// passWith is like pass, with an archive.
func (d *simulation) passWith(t *testing.T, a *archived, n int) {
	t.Helper()
	for range n {
		d.now = d.now.Add(15 * time.Second)
		if err := d.Take(t.Context(), ledger.Sources{Broker: d.broker, Archive: a}, []ledger.Account{d.account}); err != nil {
			t.Fatal(err)
		}
	}
}

// A message in the archive is not missing, whatever its state, even after a purge has removed it.
func TestArchivedMessagesAreNotMissing(t *testing.T) {
	for name, to := range map[string]store.QueueSummary{
		"failed":    {Counts: store.Counts{Failed: 1}},
		"replaying": {Counts: store.Counts{Replaying: 1}},
		"replayed":  {Counts: store.Counts{Replayed: 1}},
		"discarded": {Counts: store.Counts{Discarded: 1}},
		"purged":    {Purged: 1},
	} {
		d := newSimulation(t, openSQLite(t))
		write, _ := d.process(t, "worker-1")
		write(0)
		a := &archived{QueueSummary: store.QueueSummary{Queue: params.Text(d.queue)}}
		d.broker[d.queue] = ledger.Figures{Published: 1, Messages: 1}
		d.passWith(t, a, 5)
		a.QueueSummary = to
		a.Queue = params.Text(d.queue)
		d.broker[d.queue] = ledger.Figures{Published: 1, Taken: 1}
		d.passWith(t, a, 5)
		if line := d.line(t); line.State != ledger.Balanced || line.Missing != 0 {
			t.Errorf("%s: got %+v, want a balanced account", name, line)
		}
	}
}

// The broker's figures can be 10 s old, so a message that was sent later may be in flight although the queues were empty.
func TestOutcomesSettleBeforeOldestFigures(t *testing.T) {
	d := newSimulation(t, openSQLite(t))
	a := &archived{QueueSummary: store.QueueSummary{Queue: params.Text(d.queue)}}
	d.broker[d.queue] = ledger.Figures{}
	for range 6 {
		d.passWith(t, a, 1)
		if n := len(a.settled); n > 0 && d.now.Sub(a.settled[n-1]) < 10*time.Second {
			t.Errorf("at %s: outcomes are settled up to %s, want at most 10 s before", d.now, a.settled[n-1])
		}
	}
	if len(a.settled) == 0 {
		t.Error("outcomes are never settled")
	}
}
