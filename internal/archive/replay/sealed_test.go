package replay

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/claimcheck"
	"github.com/reprisemq/reprise/encryption"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/outbox"
	"github.com/reprisemq/reprise/topology"
)

// An encrypted and a stored body pass unchanged through an outbox, the failed queue, a redrive, the archive and a replay, and only
// the handler reads them.
func TestSealedBodiesReachTheirHandler(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		work := w.Queue("work", nil)
		check, err := claimcheck.New(claimcheck.Config{Store: claimcheck.Dir(t.TempDir()), Threshold: 1000})
		archivetest.Must(t, err)
		keys, err := encryption.New(encryption.Config{Current: "2026-11", Keys: map[string][]byte{"2026-11": bytes.Repeat([]byte{1}, 32)}})
		archivetest.Must(t, err)
		seal := func(ctx context.Context, m *reprise.Message) error {
			if err := keys.BeforePublish(ctx, m); err != nil {
				return err
			}
			return check.BeforePublish(ctx, m)
		}
		want := map[string]string{"small": "secret", "large": strings.Repeat("secret", 1000)}
		var mended atomic.Bool
		var mu sync.Mutex
		attempts := map[string]int{}
		worker, err := reprise.NewWorker(w.Client, reprise.WorkerConfig{
			Queue: work, Policy: reprise.Policy{MaxAttempts: 1}, Middleware: []reprise.Middleware{check.Middleware, keys.Middleware},
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				if string(m.Body) != want[m.MessageID] || m.Attempt != 1 || m.Headers[encryption.Header] != nil || m.Headers[claimcheck.Header] != nil {
					t.Errorf("message %s, attempt %d: got the body %.40q and the headers %v", m.MessageID, m.Attempt, m.Body, m.Headers)
				}
				attempts[m.MessageID]++
				if !mended.Load() {
					return errors.New("failure")
				}
				return nil
			}),
		})
		archivetest.Must(t, err)
		w.Runs(worker.Run)
		handled := func(times int) {
			t.Helper()
			testkit.Eventually(t, archivetest.Longest, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return attempts["small"] == times && attempts["large"] == times
			})
		}

		db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "outbox.db")+"?_pragma=busy_timeout(30000)")
		archivetest.Must(t, err)
		t.Cleanup(func() { db.Close() })
		box, err := outbox.Open(t.Context(), db, outbox.Config{Dialect: outbox.SQLite, BeforeInsert: seal})
		archivetest.Must(t, err)
		for id, body := range want {
			archivetest.Must(t, box.Schedule(t.Context(), &outbox.Message{Message: reprise.Message{RoutingKey: work, MessageID: id, Body: []byte(body)}}))
		}
		publisher, err := reprise.Dial(t.Context(), b.URL, &reprise.Config{BeforePublish: seal}) // does not seal a message twice
		archivetest.Must(t, err)
		t.Cleanup(func() { _ = publisher.Close(context.Background()) })
		relay, err := outbox.NewRelay(box, publisher, outbox.RelayConfig{})
		archivetest.Must(t, err)
		w.Runs(relay.Run)

		parked := topology.FailedQueue(work)
		handled(1)
		testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(parked) == 2 })
		got, err := redriveFrom(t.Context(), publisher, RedriveConfig{From: parked})
		if err != nil || got.Sent != 2 {
			t.Errorf("redrive: got %+v, %v, want 2 sent", got, err)
		}
		handled(2)

		ingests(w, w.Client, parked)
		testkit.Eventually(t, archivetest.Longest, func() bool { return len(w.Archived()) == 2 })
		for _, m := range w.Archived() {
			key, encrypted := failed.EncryptionKey(m.Content.Headers)
			isLarge := m.Content.Properties.MessageID == "large"
			if bytes.Contains(m.Content.Body, []byte("secret")) || !encrypted || key != "2026-11" || m.Content.IsReference() != isLarge {
				t.Errorf("archived message: got the body %q and the headers %v", m.Content.Body, m.Content.Headers)
			}
		}
		mended.Store(true)
		w.Runs(New(publisher, w.Archive, Config{}).Run)
		r, err := w.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}, IgnoreSame: true}, "me")
		archivetest.Must(t, err)
		handled(3)
		testkit.Eventually(t, archivetest.Longest, func() bool {
			r, err = w.Archive.Replay(t.Context(), r.ID)
			return err == nil && r.Succeeded == 2
		})
	})
}
