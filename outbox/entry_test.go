package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/outbox"
)

func every(t testing.TB, b *outbox.Box, e outbox.Entry) {
	t.Helper()
	e.Message.RoutingKey = "orders"
	if err := b.Every(e); err != nil {
		t.Fatal(err)
	}
}

func tick(t testing.TB, boxes ...*outbox.Box) {
	t.Helper()
	for _, b := range boxes {
		if err := outbox.Tick(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOccurrencesAreInsertedOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock, to := newClock(), &recorder{}
		var boxes []*outbox.Box
		for range 3 {
			b := db.box(t, clock)
			every(t, b, outbox.Entry{Name: "e", Spec: "* * * * *"})
			boxes = append(boxes, b)
		}
		r := relay(t, boxes[0], to)
		tick(t, boxes...)
		step(t, r)
		to.want(t)
		for range 3 {
			clock.pass(time.Minute)
			var all sync.WaitGroup
			for _, b := range boxes {
				all.Go(func() {
					if err := outbox.Tick(t.Context(), b); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
		step(t, r)
		to.want(t, "cron:default/e/2026-01-01T00:01:00Z", "cron:default/e/2026-01-01T00:02:00Z", "cron:default/e/2026-01-01T00:03:00Z")
		if got := to.stored[0].Timestamp; !got.Equal(time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)) {
			t.Errorf("timestamp: got %v, want the time of the occurrence", got)
		}
		all, err := boxes[0].Entries(t.Context())
		if err != nil || len(all) != 1 || all[0].App != "default" || all[0].Name != "e" || !all[0].Next.Equal(clock.Now().Add(time.Minute)) {
			t.Errorf("Entries: got %+v, %v", all, err)
		}
	})
}

// A process inserts the occurrences that were missed because it did not run, or had stopped.
func TestMissedOccurrences(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		db := openSQLite(t)
		clock, to := newClock(), &recorder{}
		start := func() *outbox.Box {
			b := db.box(t, clock)
			every(t, b, outbox.Entry{Name: "latest", Spec: "0 * * * *"})
			every(t, b, outbox.Entry{Name: "all", Spec: "0 * * * *", Missed: outbox.MissedAll, CatchUp: 2 * time.Hour})
			every(t, b, outbox.Entry{Name: "old", Spec: "0 1 * * *", CatchUp: time.Hour})
			return b
		}
		b := start()
		tick(t, b)
		clock.pass(5*time.Hour + time.Minute)
		if restarts {
			b = start()
		}
		tick(t, b)
		step(t, relay(t, b, to))
		to.want(t, "cron:default/latest/2026-01-01T05:00:00Z", "cron:default/all/2026-01-01T04:00:00Z", "cron:default/all/2026-01-01T05:00:00Z")
	}
}

// During a rolling deployment, the processes with the replaced specification insert nothing, also after the restart of one of them.
func TestReplacedSpecification(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock, to := newClock(), &recorder{}
		start := func(spec string) *outbox.Box {
			b := db.box(t, clock)
			every(t, b, outbox.Entry{Name: "e", Spec: spec})
			tick(t, b)
			return b
		}
		old := start("0 * * * *")
		fresh := start("30 * * * *")
		r := relay(t, fresh, to)
		clock.pass(time.Hour)
		tick(t, old, fresh)
		step(t, r)
		to.want(t, "cron:default/e/2026-01-01T00:30:00Z")
		restarted := start("0 * * * *")
		clock.pass(time.Hour)
		tick(t, fresh, restarted, old)
		step(t, r)
		to.want(t, "cron:default/e/2026-01-01T00:30:00Z", "cron:default/e/2026-01-01T02:00:00Z")
		// The processes with the stored specification have stopped.
		for range 4 {
			clock.pass(30 * time.Minute)
			tick(t, fresh)
		}
		step(t, r)
		if got := to.ids(); got[len(got)-1] != "cron:default/e/2026-01-01T03:30:00Z" {
			t.Errorf("published messages: got %v, want an occurrence at 3:30", got)
		}
	})
}

// A requested occurrence is inserted once, by a process that has the entry, and does not replace the next regular one.
func TestOccur(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock, to := newClock(), &recorder{}
		other := db.box(t, clock)
		var boxes []*outbox.Box
		for range 2 {
			b := db.box(t, clock)
			every(t, b, outbox.Entry{Name: "e", Spec: "0 * * * *", CatchUp: 10 * time.Minute})
			boxes = append(boxes, b)
		}
		r := relay(t, boxes[0], to)
		occur := func() {
			t.Helper()
			if err := other.Occur(t.Context(), "default", "e"); err != nil {
				t.Fatal(err)
			}
		}
		if err := other.Occur(t.Context(), "default", "e"); !errors.Is(err, outbox.ErrNoEntry) {
			t.Errorf("Occur before the entry exists: got %v, want ErrNoEntry", err)
		}
		tick(t, boxes...)
		clock.pass(59 * time.Minute)
		occur()
		occur()
		if err := other.Occur(t.Context(), "default", "e/now"); !errors.Is(err, outbox.ErrNoEntry) {
			t.Errorf("Occur of a request: got %v, want ErrNoEntry", err)
		}
		tick(t, other)
		if all, err := other.Entries(t.Context()); err != nil || len(all) != 1 || len(all[0].Times(3)) != 3 || !all[0].Times(3)[2].Equal(clock.Now().Add(2*time.Hour+time.Minute)) {
			t.Errorf("Entries: got %+v, %v; want one with its next times", all, err)
		}
		tick(t, boxes...)
		clock.pass(time.Minute)
		tick(t, boxes...)
		step(t, r)
		to.want(t, "cron:default/e/2026-01-01T00:59:00.000Z", "cron:default/e/2026-01-01T01:00:00Z")
		occur()
		clock.pass(11 * time.Minute)
		tick(t, boxes...)
		step(t, r)
		to.want(t, "cron:default/e/2026-01-01T00:59:00.000Z", "cron:default/e/2026-01-01T01:00:00Z")
	})
}

// An entry whose message cannot be inserted does not block other entries.
func TestRefusedEntryDoesNotBlockOthers(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock, to := newClock(), &recorder{}
		refuse := false
		b := db.box(t, clock, func(c *outbox.Config) {
			c.BeforeInsert = func(_ context.Context, m *reprise.Message) error {
				if refuse && m.Type == "refused" {
					return errors.New("refused")
				}
				return nil
			}
		})
		every(t, b, outbox.Entry{Name: "refused", Spec: "* * * * *", Message: reprise.Message{Type: "refused"}})
		every(t, b, outbox.Entry{Name: "e", Spec: "* * * * *"})
		tick(t, b)
		refuse = true
		clock.pass(time.Minute)
		for range 2 {
			if err := outbox.Tick(t.Context(), b); err == nil || !strings.Contains(err.Error(), `entry "refused"`) {
				t.Errorf("refused entry: got %v, want an error", err)
			}
			for _, name := range []string{"refused", "e"} {
				if err := b.Occur(t.Context(), "default", name); err != nil {
					t.Error(err)
				}
			}
			clock.pass(time.Millisecond)
		}
		step(t, relay(t, b, to))
		to.want(t, "cron:default/e/2026-01-01T00:01:00Z", "cron:default/e/2026-01-01T00:01:00.000Z")
	})
}

// A forgotten entry is not listed. If a process still has it, its occurrences continue, and the next one is not lost.
func TestForget(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock, to := newClock(), &recorder{}
		b := db.box(t, clock)
		every(t, b, outbox.Entry{Name: "e", Spec: "0 * * * *"})
		tick(t, b)
		listed := func(want int) {
			t.Helper()
			if entries, err := b.Entries(t.Context()); err != nil || len(entries) != want {
				t.Errorf("entries: got %+v (%v), want %d", entries, err, want)
			}
		}
		listed(1)
		if err := b.Occur(t.Context(), "default", "e"); err != nil {
			t.Fatal(err)
		}
		if err := b.Forget(t.Context(), "default", "e"); err != nil {
			t.Fatal(err)
		}
		listed(0)
		for _, err := range []error{b.Forget(t.Context(), "default", "e"), b.Forget(t.Context(), "other", "e"), b.Forget(t.Context(), "default", "e/now")} {
			if !errors.Is(err, outbox.ErrNoEntry) {
				t.Errorf("forget what does not exist: got %v, want ErrNoEntry", err)
			}
		}
		tick(t, b)
		listed(0)
		other := db.box(t, clock)
		every(t, other, outbox.Entry{Name: "e", Spec: "0 * * * *"})
		clock.pass(time.Hour)
		tick(t, b, other, b)
		listed(1)
		clock.pass(time.Hour)
		tick(t, b, other)
		step(t, relay(t, b, to))
		to.want(t, "cron:default/e/2026-01-01T01:00:00Z", "cron:default/e/2026-01-01T02:00:00Z")
	})
}

func TestEveryRefusesInvalidEntries(t *testing.T) {
	b := openSQLite(t).box(t, nil)
	for name, e := range map[string]outbox.Entry{
		"no name":   {Spec: "* * * * *"},
		"slash":     {Name: "a/b", Spec: "* * * * *"},
		"no spec":   {Name: "e"},
		"id":        {Name: "e", Spec: "* * * * *", Message: reprise.Message{MessageID: "x"}},
		"missed":    {Name: "e", Spec: "* * * * *", Missed: 7},
		"catch-up":  {Name: "e", Spec: "* * * * *", CatchUp: -1},
		"body":      {Name: "e", Spec: "* * * * *", Message: reprise.Message{Headers: map[string]any{"x": struct{}{}}}},
		"no day":    {Name: "e", Spec: "0 0 30 2 *"},
		"seconds":   {Name: "e", Spec: "0 * * * * *"},
		"zone":      {Name: "e", Spec: "CRON_TZ=Nowhere * * * * *"},
		"step":      {Name: "e", Spec: "*/0 * * * *"},
		"range":     {Name: "e", Spec: "5-1 * * * *"},
		"number":    {Name: "e", Spec: "60 * * * *"},
		"weekday":   {Name: "e", Spec: "* * * * 8"},
		"not a day": {Name: "e", Spec: "* * L * *"},
	} {
		if err := b.Every(e); err == nil {
			t.Errorf("%s: got nil, want an error", name)
		} else if !strings.HasPrefix(err.Error(), "outbox: ") {
			t.Errorf("%s: got %v, want an error of the package", name, err)
		}
	}
	every(t, b, outbox.Entry{Name: "e", Spec: "* * * * *"})
	if err := b.Every(outbox.Entry{Name: "e", Spec: "0 * * * *"}); err == nil {
		t.Error(fmt.Errorf("second entry with the name: got nil, want an error"))
	}
}
