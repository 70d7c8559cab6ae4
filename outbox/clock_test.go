package outbox_test

import (
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/outbox"
)

// After the clock of the database was set back, new messages leave at once: a relay that runs searches them again, also at a
// destination that had failed, and another relay replaces a crashed one.
func TestClockSetBack(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		b, to := db.box(t, clock), &recorder{}
		first, second := relay(t, b, to), relay(t, b, to)
		to.before = func([]*reprise.Message) error { return &reprise.UnroutableError{} }
		schedule(t, b, message("failed"))
		step(t, first)
		to.before = nil
		clock.pass(-24 * time.Hour)
		schedule(t, b, message("1"), delayed("later", time.Second), delayed("last", time.Hour))
		step(t, first)
		to.want(t, "1")
		cancel(t, b, outbox.Filter{MessageID: "last"}, outbox.Result{TooLate: 1})
		clock.pass(time.Second)
		step(t, first)
		to.want(t, "1", "later")

		clock.pass(-24 * time.Hour)
		schedule(t, b, message("2"))
		step(t, second) // sees the lease of a relay that may run
		to.want(t, "1", "later")
		if held, err := outbox.Renew(t.Context(), first); !held || err != nil {
			t.Fatalf("got %v, %v; want a renewed lease", held, err)
		}
		clock.pass(outbox.DefaultLease - time.Millisecond)
		step(t, second)
		to.want(t, "1", "later")

		clock.pass(-24 * time.Hour) // first has crashed
		schedule(t, b, message("3"))
		step(t, second)
		to.want(t, "1", "later")
		if s, err := b.Status(t.Context()); err != nil || s.Relay {
			t.Errorf("got %+v, %v; want no relay", s, err)
		}
		clock.pass(outbox.DefaultLease)
		step(t, second)
		to.want(t, "1", "later", "3")
	})
}

// Periodic messages continue after the clock of the database was far ahead, in a process that runs and in a new one. Occurrences that are
// due again can be repeated, with the same MessageID.
func TestClockAheadDoesNotSilenceEntries(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock, to := newClock(), &recorder{}
		hourly := outbox.Entry{Name: "e", Spec: "0 * * * *"}
		open := func() *outbox.Box {
			b := db.box(t, clock)
			every(t, b, hourly)
			return b
		}
		first := open()
		r := relay(t, first, to)
		tick(t, first)
		occur := func(boxes []*outbox.Box, d time.Duration, want ...string) {
			t.Helper()
			clock.pass(d)
			tick(t, boxes...)
			step(t, r)
			to.want(t, want...)
		}
		const ahead = 30 * 24 * time.Hour
		one, fault, two, three := "cron:default/e/2026-01-01T01:00:00Z", "cron:default/e/2026-01-31T02:00:00Z", "cron:default/e/2026-01-01T02:00:00Z", "cron:default/e/2026-01-01T03:00:00Z"
		running := []*outbox.Box{first}
		occur(running, time.Hour, one)
		occur(running, ahead+time.Hour, one, fault)
		occur(running, -ahead-time.Minute, one, fault) // 01:59
		running = append(running, open())
		occur(running, time.Minute, one, fault, two)
		occur(running, -time.Minute, one, fault, two) // a small change repeats nothing
		occur(running, time.Minute, one, fault, two)
		occur(running, time.Hour, one, fault, two, three)
	})
}
