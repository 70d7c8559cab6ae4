package outbox_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/outbox"
)

func cancel(t testing.TB, b *outbox.Box, f outbox.Filter, want outbox.Result) {
	t.Helper()
	if got, err := b.Cancel(t.Context(), f); err != nil || got != want {
		t.Errorf("Cancel(%+v): got %+v, %v; want %+v", f, got, err, want)
	}
}

func move(t testing.TB, b *outbox.Box, f outbox.Filter, at time.Time, want outbox.Result) {
	t.Helper()
	if got, err := b.Move(t.Context(), f, at); err != nil || got != want {
		t.Errorf("Move(%+v): got %+v, %v; want %+v", f, got, err, want)
	}
}

func delayed(id string, d time.Duration) *outbox.Message {
	m := message(id)
	m.In = d
	return m
}

func TestCancelAndMove(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		b, to := db.box(t, clock), &recorder{}
		r := relay(t, b, to)
		schedule(t, b, delayed("canceled", time.Minute), delayed("later", time.Minute), delayed("sooner", time.Hour), message("due"))
		cancel(t, b, outbox.Filter{MessageID: "canceled"}, outbox.Result{Done: 1})
		cancel(t, b, outbox.Filter{MessageID: "canceled"}, outbox.Result{})
		cancel(t, b, outbox.Filter{Seqs: []int64{}, Through: 1000}, outbox.Result{}) // an empty list is not the absence of a list
		move(t, b, outbox.Filter{MessageID: "later"}, clock.Now().Add(2*time.Minute), outbox.Result{Done: 1})
		move(t, b, outbox.Filter{MessageID: "sooner"}, time.Time{}, outbox.Result{Done: 1})
		cancel(t, b, outbox.Filter{MessageID: "due"}, outbox.Result{Done: 1}) // due, but no relay has read it
		step(t, r)
		to.want(t, "sooner")
		clock.pass(time.Minute)
		step(t, r)
		to.want(t, "sooner")
		clock.pass(time.Minute)
		step(t, r)
		to.want(t, "sooner", "later")
		if _, err := b.Cancel(t.Context(), outbox.Filter{}); err == nil {
			t.Error("Cancel without a condition: got nil, want an error")
		}
		if _, err := b.Move(t.Context(), outbox.Filter{MessageID: "later"}, year10000); !errors.Is(err, reprise.ErrInvalidMessage) {
			t.Errorf("Move after the year 9999: got %v, want ErrInvalidMessage", err)
		}
	})
}

// While a relay publishes the messages that it has read, Cancel and Move do not change them.
func TestCancelAfterReadIsTooLate(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		b, to := db.box(t, clock), &recorder{}
		r := relay(t, b, to)
		fail := true
		to.before = func(messages []*reprise.Message) error {
			cancel(t, b, outbox.Filter{MessageID: "read"}, outbox.Result{TooLate: 1})
			move(t, b, outbox.Filter{MessageID: "read"}, clock.Now().Add(time.Hour), outbox.Result{TooLate: 1})
			cancel(t, b, outbox.Filter{MessageID: "not read"}, outbox.Result{Done: 1})
			if fail {
				return reprise.ErrUnconfirmed
			}
			return nil
		}
		schedule(t, b, message("read"), delayed("not read", time.Millisecond))
		if _, err := outbox.Step(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		to.want(t)
		to.before = nil
		// The attempt failed, and the broker may have stored the message.
		move(t, b, outbox.Filter{Failed: true}, clock.Now().Add(time.Hour), outbox.Result{Attempted: 1})
		clock.pass(time.Minute)
		step(t, r)
		to.want(t)
		cancel(t, b, outbox.Filter{RoutingKey: "orders"}, outbox.Result{Attempted: 1})
		clock.pass(time.Hour)
		step(t, r)
		to.want(t)
	})
}

func TestUniqueMessageIsInsertedOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		b, to := db.box(t, clock), &recorder{}
		r := relay(t, b, to)
		unique := func(id string) *outbox.Message {
			m := delayed(id, time.Minute)
			m.Unique, m.UniqueFor = "invoice ", time.Hour
			return m
		}
		expect := func(m *outbox.Message, duplicateOf string) {
			t.Helper()
			schedule(t, b, m)
			if m.Duplicate != (duplicateOf != "") || m.Duplicate && m.MessageID != duplicateOf {
				t.Errorf("got duplicate %v of %q, want %q", m.Duplicate, m.MessageID, duplicateOf)
			}
		}
		tx := begin(t, db)
		insert(t, b, tx, unique("rolled back"))
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		expect(unique("canceled"), "")
		cancel(t, b, outbox.Filter{MessageID: "canceled"}, outbox.Result{Done: 1})
		expect(unique("1"), "")
		expect(unique("1"), "1") // a repeated call
		expect(unique("2"), "1")
		other := unique("other")
		other.Unique = "Invoice" // names are compared by their bytes
		expect(other, "")
		clock.pass(time.Minute)
		step(t, r)
		to.want(t, "1", "other")
		clock.pass(time.Hour - time.Millisecond)
		expect(unique("3"), "1")
		clock.pass(time.Millisecond)
		expect(unique("4"), "")
		twice := []*outbox.Message{unique("5"), unique("6")}
		for _, m := range twice {
			m.Unique = "twice"
		}
		schedule(t, b, twice...)
		if twice[0].Duplicate || !twice[1].Duplicate || twice[1].MessageID != "5" {
			t.Errorf("two messages of one call: got %+v and %+v, want the second as a duplicate", twice[0], twice[1])
		}
		move(t, b, outbox.Filter{MessageID: "5"}, clock.Now().Add(10*time.Hour), outbox.Result{Done: 1})
		clock.pass(11*time.Hour - time.Millisecond)
		seven := unique("7")
		seven.Unique = "twice"
		expect(seven, "5") // the key moves with the message
	})
}

func TestList(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		b := db.box(t, clock)
		var all []*outbox.Message
		for i := range 10 {
			m := delayed(fmt.Sprint(i), time.Duration(10-i/2)*time.Minute)
			m.Key = []string{"a", "A"}[i%2]
			all = append(all, m)
		}
		schedule(t, b, all...)
		ids := func(f outbox.Filter) string {
			t.Helper()
			rows, err := b.List(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			for _, r := range rows {
				text.WriteString(r.MessageID)
			}
			return text.String()
		}
		var pages strings.Builder
		var last *outbox.Row
		for {
			rows, err := b.List(t.Context(), outbox.Filter{After: last, Limit: 3})
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) == 0 {
				break
			}
			for _, r := range rows {
				pages.WriteString(r.MessageID)
			}
			last = &rows[len(rows)-1]
		}
		for _, c := range []struct{ got, want string }{
			{ids(outbox.Filter{}), "8967452301"},
			{pages.String(), "8967452301"},
			{ids(outbox.Filter{Key: "A"}), "97531"},
			{ids(outbox.Filter{From: clock.Now().Add(7 * time.Minute), Before: clock.Now().Add(9 * time.Minute)}), "6745"},
			{ids(outbox.Filter{Failed: true}), ""},
			{ids(outbox.Filter{RoutingKey: "orders", Limit: 1}), "8"},
			{ids(outbox.Filter{Exchange: "none"}), ""},
			{ids(outbox.Filter{Seqs: []int64{2, 4, 100}, Key: "A"}), "31"},
			{ids(outbox.Filter{Through: 2}), "01"},
		} {
			if c.got != c.want {
				t.Errorf("List: got %s, want %s", c.got, c.want)
			}
		}
		if n, through, err := b.Count(t.Context(), outbox.Filter{Key: "A", Limit: 1}); n != 5 || through != 10 || err != nil {
			t.Errorf("Count: got %d through %d, %v; want 5 through 10", n, through, err)
		}
		if r, err := b.Get(t.Context(), 3); err != nil || r == nil || r.MessageID != "2" || string(r.Body) != "2" {
			t.Errorf("Get: got %+v, %v; want message 2", r, err)
		}
		if r, err := b.Get(t.Context(), 100); err != nil || r != nil {
			t.Errorf("Get of a row that does not exist: got %+v, %v", r, err)
		}
		clock.pass(7 * time.Minute)
		if s, err := b.Status(t.Context()); err != nil || s.Lag != time.Minute || !s.Next.Equal(clock.Now().Add(-time.Minute)) || s.Relay {
			t.Errorf("Status: got %+v, %v; want a lag of one minute", s, err)
		}
	})
}
