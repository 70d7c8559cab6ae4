package store_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit/flags"
)

// retry returns a report of one retry.
func retry(queue, id string, attempt int, failedAt time.Time, delay time.Duration, text string) protocol.RetryReport {
	return protocol.RetryReport{Queue: queue, Host: "h", Retries: []protocol.Retry{{
		MessageID: id, Wait: queue + ".wait.1-2", Attempt: attempt, Failed: failedAt, Due: failedAt.Add(delay), Error: text,
	}}}
}

// In whatever order reports arrive, the list contains the latest attempt of each message, until the message is overdue
// or archived as failed. Groups and queues count the listed messages.
func TestWaitingListsLatestAttempts(t *testing.T) {
	flags.Default(t, "rapid.checks", "30")
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock()
		a := db.archive(t, c.use)
		rapid.Check(t, func(t *rapid.T) {
			db.empty(t, a)
			model := map[[2]string]store.Waiting{}
			queues, ids := rapid.SampledFrom([]string{"orders", "mails"}), rapid.SampledFrom([]string{"1", "2", "3", "4"})
			var late []protocol.RetryReport
			t.Repeat(map[string]func(*rapid.T){
				"report": func(t *rapid.T) {
					r := retry(queues.Draw(t, "queue"), ids.Draw(t, "id"), rapid.IntRange(1, 9).Draw(t, "attempt"), c.now(),
						time.Duration(rapid.IntRange(1, 7200).Draw(t, "delay"))*time.Second, fmt.Sprintf("no route to host %d", rapid.IntRange(1, 3).Draw(t, "text")))
					c.pass(time.Millisecond) // the attempts of a message end at different times
					if rapid.Bool().Draw(t, "late") {
						late = append(late, r)
						return
					}
					noteRetry(t, a, model, c.now(), r)
				},
				"late": func(t *rapid.T) {
					noteRetry(t, a, model, c.now(), late...)
					late = nil
				},
				"archive": func(t *rapid.T) {
					queue, id := queues.Draw(t, "queue"), ids.Draw(t, "id")
					_, err := a.Add(context.Background(), []failed.Message{{Queue: queue, FailedQueue: queue + ".failed", Content: failed.Content{Properties: failed.Properties{MessageID: id}}}})
					check(t, err)
					delete(model, [2]string{queue, id})
				},
				"forget": func(t *rapid.T) {
					check(t, a.ForgetOverdue(context.Background()))
					maps.DeleteFunc(model, func(_ [2]string, w store.Waiting) bool { return !listed(w, c.now()) })
				},
				"pass": func(t *rapid.T) { c.pass(time.Duration(rapid.IntRange(1, 3000).Draw(t, "seconds")) * time.Second) },
				"": func(t *rapid.T) {
					checkWaiting(t, a, model, c.now())
				},
			})
		})
	})
}

// noteRetry stores reports in the archive and in the model.
func noteRetry(t *rapid.T, a *store.Archive, model map[[2]string]store.Waiting, now time.Time, reports ...protocol.RetryReport) {
	check(t, a.NoteRetries(context.Background(), reports))
	for _, r := range reports {
		x := r.Retries[0]
		key := [2]string{r.Queue, x.MessageID}
		w := store.Waiting{Queue: params.Text(r.Queue), Wait: params.Text(x.Wait), MessageID: params.Text(x.MessageID), Host: params.Text(r.Host), Attempt: x.Attempt, Failed: x.Failed, Due: x.Due, Error: params.Text(x.Error)}
		if old, found := model[key]; listed(w, now) && (!found || !w.Failed.Before(old.Failed)) {
			model[key] = w
		}
	}
}

func listed(w store.Waiting, now time.Time) bool {
	return w.Due.Add(w.Due.Sub(w.Failed)/4 + time.Minute).After(now)
}

func checkWaiting(t *rapid.T, a *store.Archive, model map[[2]string]store.Waiting, now time.Time) {
	ctx := context.Background()
	f := store.WaitingFilter{Queue: rapid.SampledFrom([]params.Text{"", "orders"}).Draw(t, "queue"), Attempt: rapid.IntRange(0, 5).Draw(t, "attempt")}
	if rapid.Bool().Draw(t, "bounded") {
		f.Before = now.Add(time.Hour)
	}
	var want []store.Waiting
	var counts store.WaitingCounts
	for _, w := range model {
		if !listed(w, now) || f.Queue != "" && w.Queue != f.Queue || w.Attempt < f.Attempt || !f.Before.IsZero() && !w.Due.Before(f.Before) {
			continue
		}
		want = append(want, w)
		counts.Messages++
		counts.Attempts = max(counts.Attempts, w.Attempt)
		switch {
		case !w.Due.After(now):
			counts.Due++
		case counts.Next.IsZero() || w.Due.Before(counts.Next):
			counts.Next = w.Due
		}
	}
	order := func(x, y store.Waiting) int {
		return cmp.Or(x.Due.Compare(y.Due), cmp.Compare(x.Queue+x.MessageID, y.Queue+y.MessageID))
	}
	var got []store.Waiting
	groups := map[string]bool{}
	for after := ""; ; {
		page, next, err := a.Waiting(ctx, f, store.Page{Size: 2, After: after})
		check(t, err)
		for _, w := range page {
			groups[w.Group] = true
			w.ID, w.Group = 0, ""
			got = append(got, w)
		}
		if after = next; next == "" {
			break
		}
	}
	slices.SortFunc(want, order)
	slices.SortStableFunc(got, order)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("list differs: %s", diff)
	}
	counted, err := a.CountWaiting(ctx, f)
	check(t, err)
	if diff := gocmp.Diff(counts, counted); diff != "" {
		t.Fatalf("counts differ: %s", diff)
	}
	all, err := a.WaitingGroups(ctx, f)
	check(t, err)
	var n int64
	for _, g := range all {
		n += g.Counts.Messages
		if !groups[g.Key] || !strings.HasPrefix(g.Text, "no route to host *") || !strings.HasPrefix(string(g.Example), "no route") {
			t.Fatalf("got group %+v, want a listed key and the error \"no route to host *\"", g)
		}
	}
	byQueue, err := a.WaitingQueues(ctx, f)
	check(t, err)
	for _, q := range byQueue {
		n -= q.Counts.Messages
	}
	if len(all) != len(groups) || n != 0 {
		t.Fatalf("got %d groups, want %d; groups and queues differ by %d messages", len(all), len(groups), n)
	}
}

// A message gets a new ID with each attempt, so that an act on the displayed attempt does not affect the next
// attempt. Its group is the same as in the failed list.
func TestWaitingIDChangesWithAttempt(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock()
		a := db.archive(t, c.use)
		only := func(f store.WaitingFilter) store.Waiting {
			t.Helper()
			page, _, err := a.Waiting(t.Context(), f, store.Page{})
			check(t, err)
			if len(page) != 1 {
				t.Fatalf("got %d messages, want 1", len(page))
			}
			return page[0]
		}
		check(t, a.NoteRetries(t.Context(), []protocol.RetryReport{retry("orders", "1", 1, c.now(), time.Hour, "no customer 17")}))
		first := only(store.WaitingFilter{})
		c.pass(time.Minute)
		check(t, a.NoteRetries(t.Context(), []protocol.RetryReport{retry("orders", "1", 2, c.now(), time.Hour, "no customer 18")}))
		second := only(store.WaitingFilter{Group: first.Group[:4]})
		if second.ID == first.ID || second.Attempt != 2 || second.Group != first.Group {
			t.Errorf("second attempt: got %+v after %+v, want a different ID, attempt 2, the same group", second, first)
		}
		if gone, _, err := a.Waiting(t.Context(), store.WaitingFilter{IDs: []store.WaitingID{first.ID}}, store.Page{}); len(gone) != 0 || err != nil {
			t.Errorf("ID of the first attempt: got %v, %v, want no messages", gone, err)
		}
		_, err := a.Add(t.Context(), []failed.Message{{Queue: "orders", FailedQueue: "orders.failed", Error: "no customer 19"}})
		check(t, err)
		groups, err := a.WaitingGroups(t.Context(), store.WaitingFilter{})
		check(t, err)
		if len(groups) != 1 || groups[0].Failed == 0 || groups[0].Text != "no customer *" {
			t.Errorf("got groups %+v, want one, also in the archive, with text \"no customer *\"", groups)
		}
	})
}

// WaitingReports counts omitted retries for a day, and lists reporting queues for a week.
func TestWaitingReports(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock()
		a := db.archive(t, c.use)
		r := retry("orders", "1", 1, c.now(), time.Hour, "")
		r.Missing = 7
		check(t, a.NoteRetries(t.Context(), []protocol.RetryReport{r, retry("mails", "1", 1, c.now(), time.Hour, "")}))
		got, err := a.WaitingReports(t.Context())
		check(t, err)
		if got.Missing != 7 || !got.Reports("mails") || !got.Reports("orders") || got.Reports("others") {
			t.Errorf("got %+v, want 7 missing, queues mails and orders", got)
		}
		c.pass(25 * time.Hour)
		got, err = a.WaitingReports(t.Context())
		check(t, err)
		if got.Missing != 0 || !got.Reports("orders") {
			t.Errorf("after a day: got %+v, want 0 missing, queue orders", got)
		}
		c.pass(7 * 24 * time.Hour)
		got, err = a.WaitingReports(t.Context())
		check(t, err)
		if len(got.Queues) != 0 {
			t.Errorf("after a week: got %+v, want no queues", got)
		}
	})
}

// The archive lists at most MaxWaiting messages, and counts the others.
func TestWaitingIsLimited(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock()
		a := db.archive(t, c.use)
		note := func(id string, n int) {
			t.Helper()
			r := protocol.RetryReport{Queue: "orders"}
			for i := range n {
				r.Retries = append(r.Retries, protocol.Retry{MessageID: fmt.Sprint(id, "-", i), Attempt: 1, Failed: c.now(), Due: c.now().Add(time.Hour)})
			}
			check(t, a.NoteRetries(t.Context(), []protocol.RetryReport{r}))
		}
		note("copied", 1)
		const room = 10
		columns := "queue, grp, text, wait, message_id, host, attempt, failed, due, ends, error"
		db.exec(t, fmt.Sprintf(`INSERT INTO %[1]s (id, digest, %[2]s) SELECT -g, CAST('copy ' || g AS %[3]s), %[2]s FROM %[1]s, %[4]s`,
			a.Config().Prefix+"waiting_message", columns, db.bytes(), db.numbers(store.MaxWaiting-room-1)))
		for _, x := range []struct {
			report          string
			n               int
			listed, missing int64
		}{
			{"fits", room - 3, store.MaxWaiting - 3, 0},
			{"exceeds the limit", 5, store.MaxWaiting, 2},
			{"is omitted", 4, store.MaxWaiting, 6},
		} {
			note(x.report, x.n)
			n, err := a.CountWaiting(t.Context(), store.WaitingFilter{})
			check(t, err)
			got, err := a.WaitingReports(t.Context())
			check(t, err)
			if n.Messages != x.listed || got.Missing != x.missing {
				t.Errorf("report that %s: got %d listed and %d missing, want %d and %d", x.report, n.Messages, got.Missing, x.listed, x.missing)
			}
		}
	})
}
