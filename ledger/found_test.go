package ledger_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/ledger"
)

// The ledger detects each failure, with its queue, its number of messages, its window and its possible causes.
func TestFound(t *testing.T) {
	for _, c := range []struct {
		name   string
		before []string // bodies that are published before the failure
		wrong  func(t *testing.T, h *house)
		want   int64
		reason string
	}{
		{
			name: "taken by a foreign consumer", want: 1, reason: "1 message was acknowledged in the work queue by consumers",
			wrong: func(t *testing.T, h *house) {
				h.publish(t, "a", "b") // the queue has no worker
				if _, found, err := h.channel(t).Get("orders", true); err != nil || !found {
					t.Fatal("nothing to take", err)
				}
			},
		},
		{
			name: "purged from the work queue", want: 2, reason: "not acknowledged by a worker",
			wrong: func(t *testing.T, h *house) {
				h.publish(t, "a", "b")
				h.purge(t, "orders", 2)
			},
		},
		{
			name: "purged from a wait queue", before: []string{"late"}, want: 1, reason: "not acknowledged by a worker",
			wrong: func(t *testing.T, h *house) {
				for _, q := range h.Queues() {
					if strings.HasPrefix(q.Name, "orders.wait.") {
						h.purge(t, q.Name, q.Ready)
					}
				}
			},
		},
		{
			name: "taken from the failed queue by hand", before: []string{"never 1", "never 2"}, want: 1, reason: "1 message was acknowledged in the failed queue, and not archived",
			wrong: func(t *testing.T, h *house) {
				m, found, err := h.channel(t).Get("orders.failed", false)
				if err != nil || !found {
					t.Fatal("nothing to take", err)
				}
				if err := m.Ack(false); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "redriven without an archive", before: []string{"never"}, want: 1, reason: "1 message was acknowledged in the failed queue, and not archived",
			wrong: func(t *testing.T, h *house) {
				if _, _, err := failed.Redrive(t.Context(), h.Client(t, nil), failed.RedriveConfig{From: "orders.failed"}); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "the queue deleted with what was in it", want: 3, reason: "the counters of the broker restarted",
			wrong: func(t *testing.T, h *house) {
				h.publish(t, "a", "b", "c")
				time.Sleep(time.Minute)
				if _, err := h.channel(t).QueueDelete("orders", false, false, false); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			name: "published again, since a confirm was lost", want: -1, reason: "copies that were not confirmed, and published again: 1",
			wrong: func(t *testing.T, h *house) {
				w := h.orders(t, obey)
				fault := h.LoseConfirms(1)
				h.publish(t, "never")
				h.Drain(t)
				w.Stop()
				if fault.Happened() != 1 {
					t.Fatal("no confirm was lost")
				}
			},
		},
		{
			name: "done twice, since an ack was lost", want: -1, reason: "1 message was done more often than acknowledged",
			wrong: func(t *testing.T, h *house) {
				w := h.orders(t, obey)
				fault := h.LoseAcks(1)
				h.publish(t, "a")
				h.Drain(t)
				w.Stop()
				if fault.Happened() != 1 {
					t.Fatal("no ack was lost")
				}
			},
		},
		{
			name: "lost by AckThenPublish", want: 1, reason: "messages lost by workers, up to 1",
			wrong: func(t *testing.T, h *house) {
				w := h.orders(t, obey, func(c *reprise.WorkerConfig) { c.Order = reprise.AckThenPublish; c.DrainTimeout = time.Second })
				fault := h.LoseConfirms(1) // it is unknown whether the broker has the copy; the test deletes the copy
				h.publish(t, "late")
				for _, q := range h.Queues() {
					if strings.HasPrefix(q.Name, "orders.wait.") {
						h.purge(t, q.Name, q.Ready)
					}
				}
				w.Stop()
				if fault.Happened() != 1 {
					t.Fatal("no confirm was lost")
				}
			},
		},
		{
			name: "done by a process that was killed", want: 2, reason: "worker 2 stopped without a last report",
			wrong: func(t *testing.T, h *house) {
				time.Sleep(time.Second)
				db := openFile(t, h.file)
				client := h.Client(t, &reprise.Config{Observer: h.book(t, db, "worker 2")})
				w := h.WorkWith(t, client, reprise.WorkerConfig{Queue: "orders", Handler: reprise.HandlerFunc(obey)})
				time.Sleep(7 * time.Second) // the process has written its first report
				h.publish(t, "a", "b")
				db.Close() // from now on the process cannot write reports
				w.Stop()
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			runHouse(t, func(t *testing.T, h *house) {
				w := h.orders(t, obey)
				h.publish(t, c.before...)
				if l := h.line(t); l.State != ledger.Balanced || l.Slack != 0 {
					t.Fatalf("to begin with: %+v", l)
				}
				w.Stop()
				from := time.Now()
				c.wrong(t, h)
				to := time.Now()
				l := h.line(t)
				if l.State != ledger.Differs || l.Missing != c.want || len(l.Differences) != 1 {
					t.Fatalf("found %+v, want a difference of %d", l, c.want)
				}
				d := l.Differences[0]
				if d.Messages != c.want {
					t.Errorf("a difference of %d, want %d", d.Messages, c.want)
				}
				if d.Since.After(to) || d.Until.Before(from) || d.Until.Sub(d.Since) > to.Sub(from)+time.Minute {
					t.Errorf("the window is %s to %s, and it was between %s and %s", d.Since, d.Until, from, to)
				}
				if !slices.ContainsFunc(d.Reasons, func(r string) bool { return strings.HasPrefix(r, c.reason) }) {
					t.Errorf("reasons %q, want %q", d.Reasons, c.reason)
				}
				sum := l.Done + l.Ready + l.Unacked + l.Waiting + l.Failed + l.Replayed + l.Discarded + l.Removed + l.Missing
				if sum != l.In {
					t.Errorf("the sum is %d, and %d came in", sum, l.In)
				}
			})
		})
	}
}

// A temporary loss is no longer a discrepancy after the message was found again.
func TestDifferenceThatGoesAway(t *testing.T) {
	runHouse(t, func(t *testing.T, h *house) {
		w := h.orders(t, obey)
		h.line(t)
		w.Stop()
		h.publish(t, "a")
		h.purge(t, "orders", 1)
		if l := h.line(t); l.State != ledger.Differs || l.Missing != 1 {
			t.Fatalf("purged: %+v", l)
		}
		// An imported message is one message more than was published, which compensates for the loss.
		if _, err := h.archive.Add(t.Context(), []failed.Message{{Queue: "orders", FailedQueue: "orders.failed"}}); err != nil {
			t.Fatal(err)
		}
		if l := h.line(t); l.State != ledger.Balanced || l.Missing != 0 {
			t.Errorf("there again: %+v", l)
		}
	})
}

// Two losses are two discrepancies, each with its window.
func TestTwoDifferences(t *testing.T) {
	runHouse(t, func(t *testing.T, h *house) {
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
			t.Fatalf("found %+v", l.Differences)
		}
		if between := l.Differences[1].Since.Sub(l.Differences[0].Until); between < time.Hour-time.Minute {
			t.Errorf("they are %s apart", between)
		}

		if err := h.ledger.Accept(t.Context(), "orders", "tester", "they were test orders"); err != nil {
			t.Fatal(err)
		}
		l = h.line(t)
		if l.State != ledger.Balanced || l.Missing != 0 || !strings.Contains(l.Note, "by tester, with a difference of 3: they were test orders") {
			t.Errorf("begun anew: %+v", l)
		}
	})
}

// Without a book, the state is Unknown, and there is no discrepancy.
func TestUnknown(t *testing.T) {
	runHouse(t, func(t *testing.T, h *house) {
		w := h.WorkWith(t, h.Client(t, nil), reprise.WorkerConfig{Queue: "orders", Handler: reprise.HandlerFunc(obey)})
		h.publish(t, "a")
		if l := h.line(t); l.State != ledger.Unknown || !strings.Contains(l.Note, "no worker reports to the ledger") {
			t.Errorf("found %+v", l)
		}
		w.Stop()
	})
}

func (h *house) purge(t *testing.T, queue string, want int) {
	t.Helper()
	n, err := h.channel(t).QueuePurge(queue, false)
	if err != nil || n != want {
		t.Fatalf("purged %d of %s, %v; want %d", n, queue, err, want)
	}
}
