package ledger_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A consumer that is not a worker of Reprise does not send reports. A message that a replay has sent to such a consumer is
// pending while it is unacked, and counts as settled when the work queue and the failed queue are empty.
func TestReplaysToForeignConsumersSettle(t *testing.T) {
	eachLive(t, func(t *testing.T, b live) {
		queue := testkit.Name(t, "ledger.settled")
		parked := topology.FailedQueue(queue)
		client := dialLive(t, b.url, nil)
		declared := topology.Topology{Queues: []topology.Queue{{Name: queue}, {Name: parked}}}
		if err := client.Declare(t.Context(), declared); err != nil {
			t.Fatal(err)
		}
		deleteAfter(t, b.url, map[string]string{"queue": queue})
		db := openSQLite(t)
		archive, err := store.Open(t.Context(), db.DB, store.Config{Dialect: store.SQLite})
		if err != nil {
			t.Fatal(err)
		}
		l, err := ledger.Open(t.Context(), db.DB, ledger.Config{Dialect: db.dialect, Every: b.every})
		if err != nil {
			t.Fatal(err)
		}
		ids, err := archive.Add(t.Context(), []failed.Message{{Queue: queue, FailedQueue: parked, Error: "no such customer"}})
		if err != nil {
			t.Fatal(err)
		}
		replayer := replay.New(client, archive, replay.Config{Poll: 10 * time.Millisecond})
		run(t, replayer.Run)
		run(t, func(ctx context.Context) error {
			l.Run(ctx, ledger.Sources{Broker: b.api, Archive: archive}, func() []ledger.Account { return []ledger.Account{{Work: []string{queue}}} })
			return nil
		})
		r, err := archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{IDs: ids}}, "me")
		if err != nil {
			t.Fatal(err)
		}
		await := func(what string, good func(*failed.Replay) bool) {
			t.Helper()
			testkit.Eventually(t, 3*time.Minute, func() error {
				now, err := archive.Replay(t.Context(), r.ID)
				if err == nil && !good(now) {
					err = fmt.Errorf("replay must be %s: got %+v", what, now)
				}
				return err
			})
		}
		await("sent", func(r *failed.Replay) bool { return r.State == failed.ReplayDone && r.Pending() == 1 })
		ch := channelLive(t, b.url)
		d, ok, err := ch.Get(queue, false)
		if err != nil || !ok {
			t.Fatalf("cannot get a message: %t, %v", ok, err)
		}
		samples := func(n int64) {
			t.Helper()
			testkit.Eventually(t, 3*time.Minute, func() error {
				report, err := l.Report(t.Context())
				if err == nil && (len(report.Accounts) == 0 || report.Accounts[0].Unacked != n) {
					err = fmt.Errorf("got %+v, want %d unacked messages", report.Accounts, n)
				}
				return err
			})
		}
		samples(1)
		await("unacknowledged", func(r *failed.Replay) bool { return r.Pending() == 1 && r.Settled == 0 && r.Verifying })
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
		await("acknowledged", func(r *failed.Replay) bool { return r.Settled == 1 && r.Pending() == 0 && !r.Verifying })
		if m, err := archive.Get(t.Context(), ids[0]); err != nil || m.Outcome != failed.OutcomeSettled {
			t.Errorf("message: got outcome %q, %v, want %q", m.Outcome, err, failed.OutcomeSettled)
		}
	})
}
