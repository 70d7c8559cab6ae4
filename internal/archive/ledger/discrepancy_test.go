package ledger_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/replay"
)

// The ledger detects each kind of failure. It reports the account, the number of messages, the window and the possible
// causes.
func TestDiscrepancies(t *testing.T) {
	for _, c := range []struct {
		name   string
		before []string // bodies that are published before the failure
		wrong  func(t *testing.T, h *env)
		want   int64
		reason string
	}{
		{
			name: "acknowledged by a foreign consumer", want: 1, reason: "1 message was acknowledged in the work queue by consumers",
			wrong: func(t *testing.T, h *env) {
				h.publish(t, "a", "b") // the queue has no worker
				if _, found, err := h.channel(t).Get("orders", true); err != nil || !found {
					t.Fatalf("cannot get a message: %v, %v", found, err)
				}
			},
		},
		{
			name: "purged from the work queue", want: 2, reason: "not acknowledged by a worker",
			wrong: func(t *testing.T, h *env) {
				h.publish(t, "a", "b")
				h.purge(t, "orders", 2)
			},
		},
		{
			name: "purged from a wait queue", before: []string{"late"}, want: 1, reason: "not acknowledged by a worker",
			wrong: func(t *testing.T, h *env) {
				for _, q := range h.Queues() {
					if strings.HasPrefix(q.Name, "orders.wait.") {
						h.purge(t, q.Name, q.Ready)
					}
				}
			},
		},
		{
			name: "acknowledged in the failed queue by another client", before: []string{"never 1", "never 2"}, want: 1, reason: "1 message was acknowledged in the failed queue, and not archived",
			wrong: func(t *testing.T, h *env) {
				m, found, err := h.channel(t).Get("orders.failed", false)
				if err != nil || !found {
					t.Fatalf("cannot get a message: %v, %v", found, err)
				}
				if err := m.Ack(false); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "redriven without an archive", before: []string{"never"}, want: 1, reason: "1 message was acknowledged in the failed queue, and not archived",
			wrong: func(t *testing.T, h *env) {
				if _, _, err := replay.Redrive(t.Context(), h.Client(t, nil), replay.RedriveConfig{From: "orders.failed"}); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "queue deleted with its messages", want: 3, reason: "the counters of the broker restarted",
			wrong: func(t *testing.T, h *env) {
				h.publish(t, "a", "b", "c")
				time.Sleep(time.Minute)
				if _, err := h.channel(t).QueueDelete("orders", false, false, false); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "published twice because of a lost confirm", want: -1, reason: "copies that were not confirmed, and published again: 1",
			wrong: func(t *testing.T, h *env) {
				w := h.orders(t, obey)
				fault := h.LoseConfirms(1)
				h.publish(t, "never")
				h.Drain(t)
				w.Stop()
				if fault.Happened() != 1 {
					t.Fatal("fault LoseConfirms did not happen")
				}
			},
		},
		{
			name: "processed twice because of a lost ack", want: -1, reason: "1 message was processed more often than acknowledged",
			wrong: func(t *testing.T, h *env) {
				w := h.orders(t, obey)
				fault := h.LoseAcks(1)
				h.publish(t, "a")
				h.Drain(t)
				w.Stop()
				if fault.Happened() != 1 {
					t.Fatal("fault LoseAcks did not happen")
				}
			},
		},
		{
			name: "lost by AckThenPublish", want: 1, reason: "messages lost by workers, up to 1",
			wrong: func(t *testing.T, h *env) {
				w := h.orders(t, obey, func(c *reprise.WorkerConfig) { c.Order = reprise.AckThenPublish; c.DrainTimeout = time.Second })
				fault := h.LoseConfirms(1) // the worker cannot know whether the broker has stored the copy, which the test deletes
				h.publish(t, "late")
				for _, q := range h.Queues() {
					if strings.HasPrefix(q.Name, "orders.wait.") {
						h.purge(t, q.Name, q.Ready)
					}
				}
				w.Stop()
				if fault.Happened() != 1 {
					t.Fatal("fault LoseConfirms did not happen")
				}
			},
		},
		{
			name: "processed by a killed process", want: 2, reason: "worker 2 stopped without a last report",
			wrong: func(t *testing.T, h *env) {
				time.Sleep(time.Second)
				db := openFile(t, h.file)
				client := h.Client(t, &reprise.Config{Observer: h.book(t, db, "worker 2")})
				w := h.WorkWith(t, client, reprise.WorkerConfig{Queue: "orders", Handler: reprise.HandlerFunc(obey)})
				time.Sleep(7 * time.Second) // the process has written its first report
				h.publish(t, "a", "b")
				db.Close() // from now on, the process cannot write reports
				w.Stop()
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			runEnv(t, func(t *testing.T, h *env) {
				w := h.orders(t, obey)
				h.publish(t, c.before...)
				if l := h.line(t); l.State != ledger.Balanced || l.Slack != 0 {
					t.Fatalf("before the failure: got %+v, want a balanced account", l)
				}
				w.Stop()
				from := time.Now()
				c.wrong(t, h)
				to := time.Now()
				l := h.line(t)
				if l.State != ledger.Differs || l.Missing != c.want || len(l.Differences) != 1 {
					t.Fatalf("got %+v, want a difference of %d", l, c.want)
				}
				d := l.Differences[0]
				if d.Messages != c.want {
					t.Errorf("got a difference of %d messages, want %d", d.Messages, c.want)
				}
				if d.Since.After(to) || d.Until.Before(from) || d.Until.Sub(d.Since) > to.Sub(from)+time.Minute {
					t.Errorf("window: got %s to %s, want the failure between %s and %s", d.Since, d.Until, from, to)
				}
				if !slices.ContainsFunc(d.Reasons, func(r string) bool { return strings.HasPrefix(r, c.reason) }) {
					t.Errorf("got reasons %q, want %q", d.Reasons, c.reason)
				}
				sum := l.Done + l.Ready + l.Unacked + l.Waiting + l.Failed + l.Replayed + l.Discarded + l.Removed + l.Missing
				if sum != l.In {
					t.Errorf("sum of the numbers: got %d, want %d", sum, l.In)
				}
			})
		})
	}
}

// Messages that a consumer without a book acknowledges are not missing, because their outcome is unknown. A loss in addition
// is a discrepancy.
func TestConsumersWithoutBookAreUnknown(t *testing.T) {
	runEnv(t, func(t *testing.T, h *env) {
		h.orders(t, obey)
		h.publish(t, "a", "b")
		if l := h.line(t); l.State != ledger.Balanced {
			t.Fatalf("before: got %+v, want a balanced account", l)
		}
		other := h.WorkWith(t, h.Client(t, nil), reprise.WorkerConfig{Queue: "orders", Handler: reprise.HandlerFunc(obey)})
		for range 5 {
			h.publish(t, "c", "d", "never", "late", "e", "f", "g")
			if l := h.line(t); l.State == ledger.Differs {
				t.Fatalf("two workers: got %+v, want no discrepancy", l)
			}
		}
		l := h.line(t)
		if l.State != ledger.Unknown || !strings.Contains(l.Note, "acknowledged by consumers that do not report to the ledger") || len(l.Differences) > 0 {
			t.Errorf("two workers: got %+v, want the state unknown", l)
		}
		if _, found, err := h.channel(t).Get("orders", true); err != nil || found {
			t.Fatalf("get from the empty queue: got a message %t, error %v", found, err)
		}
		other.Stop()
		h.publish(t, "h", "i")
		if l := h.line(t); l.State != ledger.Unknown {
			t.Errorf("after the other worker stopped: got %+v, want the state unknown", l)
		}
	})
}

// If an additional message compensates for a loss, the loss is no longer a discrepancy.
func TestCompensatedLossIsBalanced(t *testing.T) {
	runEnv(t, func(t *testing.T, h *env) {
		w := h.orders(t, obey)
		h.line(t)
		w.Stop()
		h.publish(t, "a")
		h.purge(t, "orders", 1)
		if l := h.line(t); l.State != ledger.Differs || l.Missing != 1 {
			t.Fatalf("after the purge: got %+v, want 1 missing message", l)
		}
		// An added message that was never published compensates for the loss.
		if _, err := h.archive.Add(t.Context(), []failed.Message{{Queue: "orders", FailedQueue: "orders.failed"}}); err != nil {
			t.Fatal(err)
		}
		if l := h.line(t); l.State != ledger.Balanced || l.Missing != 0 {
			t.Errorf("after the import: got %+v, want a balanced account", l)
		}
	})
}

// Two losses are two discrepancies with separate windows.
func TestTwoDifferences(t *testing.T) {
	runEnv(t, func(t *testing.T, h *env) {
		w := h.orders(t, obey)
		h.line(t)
		w.Stop()
		h.publish(t, "a")
		h.purge(t, "orders", 1)
		h.line(t)
		time.Sleep(time.Hour)
		h.publish(t, "a", "b")
		h.purge(t, "orders", 2)
		l := h.line(t)
		if len(l.Differences) != 2 || l.Differences[0].Messages != 1 || l.Differences[1].Messages != 2 {
			t.Fatalf("got differences %+v, want 2", l.Differences)
		}
		if between := l.Differences[1].Since.Sub(l.Differences[0].Until); between < time.Hour-time.Minute {
			t.Errorf("time between the differences: got %s, want about 1h", between)
		}

		if err := h.ledger.Accept(t.Context(), "orders", "tester", "they were test orders"); err != nil {
			t.Fatal(err)
		}
		l = h.line(t)
		if l.State != ledger.Balanced || l.Missing != 0 || !strings.Contains(l.Note, "by tester, with a difference of 3: they were test orders") {
			t.Errorf("after Accept: got %+v, want a balanced account with a note by tester", l)
		}
	})
}

// Without a book, the state is Unknown, and there is no discrepancy.
func TestStateIsUnknownWithoutBook(t *testing.T) {
	runEnv(t, func(t *testing.T, h *env) {
		w := h.WorkWith(t, h.Client(t, nil), reprise.WorkerConfig{Queue: "orders", Handler: reprise.HandlerFunc(obey)})
		h.publish(t, "a")
		if l := h.line(t); l.State != ledger.Unknown || !strings.Contains(l.Note, "no worker reports to the ledger") {
			t.Errorf("got %+v, want state Unknown", l)
		}
		w.Stop()
	})
}

func (h *env) purge(t *testing.T, queue string, want int) {
	t.Helper()
	n, err := h.channel(t).QueuePurge(queue, false)
	if err != nil || n != want {
		t.Fatalf("purge of %s: got %d, %v, want %d", queue, n, err, want)
	}
}
