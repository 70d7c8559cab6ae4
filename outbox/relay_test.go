package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/outbox"
	"github.com/reprisemq/reprise/topology"
)

func TestMessagesLeaveAfterCommit(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		b, to := db.box(t, newClock()), &recorder{}
		r := relay(t, b, to)
		tx := begin(t, db)
		insert(t, b, tx, message("rolled back"))
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		step(t, r)
		to.want(t)
		tx = begin(t, db)
		insert(t, b, tx, message("committed"))
		if db.dialect != outbox.SQLite { // SQLite has one writer, and the relay would wait for this transaction
			step(t, r)
			to.want(t)
		}
		commit(t, tx)
		step(t, r)
		to.want(t, "committed")
		step(t, r)
		to.want(t, "committed")
	})
}

func TestMessagesKeepTheirContent(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		b, to := db.box(t, clock), &recorder{}
		sent := reprise.Message{
			Body: []byte("\x00\xff body"), Exchange: "Ä ", RoutingKey: "k ", ContentType: "text/plain", ContentEncoding: "gzip",
			CorrelationID: "c", ReplyTo: "r", MessageID: "id ", Type: "t", AppID: "a", UserID: "u", Priority: 3,
			Zero: reprise.PropertyPriority, Timestamp: time.Unix(1, 0), Expiration: 1500 * time.Millisecond,
			Headers: map[string]any{"n": int32(5), "\x00": []byte{0}, "t": topology.Table{"f": float32(1)}, "l": []any{int64(1), "x\x00\xff"}},
		}
		plain := reprise.Message{MessageID: "plain", NoTimestamp: true, Body: []byte{}}
		due := reprise.Message{MessageID: "due", Body: []byte{}}
		schedule(t, b, &outbox.Message{Message: sent}, &outbox.Message{Message: plain}, &outbox.Message{Message: due})
		step(t, relay(t, b, to))
		due.Timestamp = clock.Now()
		if diff := cmp.Diff([]reprise.Message{sent, plain, due}, to.stored, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("published messages (-want +got):\n%s", diff)
		}
	})
}

// year10000 begins in UTC, and not yet in its zone. JSON cannot represent it.
var year10000 = time.Date(9999, 12, 31, 12, 0, 0, 0, time.FixedZone("", -12*3600))

func TestInvalidMessagesAreRefused(t *testing.T) {
	db := openSQLite(t)
	b := db.box(t, nil)
	for name, m := range map[string]*outbox.Message{
		"nil":       nil,
		"header":    {Message: reprise.Message{Headers: map[string]any{"x": struct{}{}}}},
		"both":      {At: time.Now(), In: time.Second},
		"negative":  {In: -time.Second},
		"late":      {At: year10000},
		"NUL":       {Message: reprise.Message{RoutingKey: "a\x00"}},
		"not UTF-8": {Key: "\xff"},
		"long":      {Unique: strings.Repeat("x", 256), UniqueFor: time.Hour},
		"no window": {Unique: "x"},
		"no unique": {UniqueFor: time.Hour},
	} {
		if err := b.Schedule(t.Context(), m); !errors.Is(err, reprise.ErrInvalidMessage) {
			t.Errorf("%s: got %v, want ErrInvalidMessage", name, err)
		}
	}
	if err := b.Insert(t.Context(), db.DB, message("x")); err == nil || !strings.Contains(err.Error(), "must be a transaction") {
		t.Errorf("Insert without a transaction: got %v, want an error", err)
	}
}

func TestMessagesLeaveWhenDue(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		b, to := db.box(t, clock), &recorder{}
		r := relay(t, b, to)
		in, at, past := message("in"), message("at"), message("past")
		in.In, at.At, past.At = time.Minute, clock.Now().Add(time.Minute+1), time.Unix(1, 0)
		schedule(t, b, at, in, past)
		step(t, r)
		to.want(t, "past")
		clock.pass(time.Minute - time.Millisecond)
		step(t, r)
		to.want(t, "past")
		clock.pass(time.Millisecond)
		step(t, r)
		to.want(t, "past", "in")
		clock.pass(time.Millisecond)
		step(t, r)
		to.want(t, "past", "in", "at")
	})
}

// A transaction with lower numbers can commit after the relay has read higher numbers.
func TestLateCommitIsFound(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		if db.dialect == outbox.SQLite {
			return // one transaction writes at a time
		}
		clock := newClock()
		b, to := db.box(t, clock), &recorder{}
		r := relay(t, b, to)
		late := begin(t, db)
		insert(t, b, late, message("late"))
		clock.pass(time.Second)
		schedule(t, b, message("early"))
		step(t, r)
		to.want(t, "early")
		commit(t, late)
		step(t, r)
		to.want(t, "early", "late")

		later := begin(t, db)
		insert(t, b, later, message("later"))
		clock.pass(time.Hour)
		schedule(t, b, message("after an hour"))
		step(t, r)
		commit(t, later)
		for range 2 { // the first search can end a pass
			clock.pass(10 * time.Second)
			step(t, r)
		}
		to.want(t, "early", "late", "after an hour", "later")
	})
}

// The second transaction with a key waits, so that its message has a higher number and leaves after the first.
func TestKeysFollowCommits(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		b, to := db.box(t, newClock()), &recorder{}
		r := relay(t, b, to)
		keyed := func(id string) *outbox.Message {
			m := message(id)
			m.Key = "order"
			return m
		}
		var first, other *sql.Tx
		first = begin(t, db)
		if db.dialect != outbox.SQLite {
			other = begin(t, db)
		}
		insert(t, b, first, keyed("1"))
		var second sync.WaitGroup
		second.Go(func() {
			tx := other
			if tx == nil {
				tx = begin(t, db)
			}
			err := b.Insert(t.Context(), tx, keyed("3"), keyed("4"))
			if err == nil {
				err = tx.Commit()
			}
			if err != nil {
				t.Error(err)
			}
		})
		for range 200 { // time for the other transaction, which must wait
			if _, err := b.Status(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		insert(t, b, first, keyed("2"))
		commit(t, first)
		second.Wait()
		step(t, r)
		to.want(t, "1", "2", "3", "4")
	})
}

// A message that the broker refuses holds the later messages of its key, but no others.
func TestRefusedMessageHoldsItsKey(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		refusing := true
		b, to := db.box(t, clock), &recorder{}
		to.before = func(messages []*reprise.Message) error {
			if e := (&reprise.BatchError{}); refusing {
				for i, m := range messages {
					if m.MessageID == "1" {
						e.Failed = append(e.Failed, &reprise.MessageError{Index: i, Err: reprise.ErrNacked})
					}
				}
				if len(e.Failed) > 0 {
					return e
				}
			}
			return nil
		}
		r := relay(t, b, to)
		var all []*outbox.Message
		for _, id := range []string{"1", "2", "3"} {
			m := message(id)
			m.Key = "order"
			all = append(all, m)
		}
		future := message("future")
		future.Key, future.In = "other", time.Hour
		held := message("held by future")
		held.Key = "other"
		schedule(t, b, append(all, future, held)...)
		step(t, r)
		to.want(t)
		rows, err := b.List(t.Context(), outbox.Filter{Failed: true})
		if err != nil || len(rows) != 1 || rows[0].MessageID != "1" || rows[0].Attempts != 1 || !strings.Contains(rows[0].Error, "refused") && rows[0].Error == "" {
			t.Errorf("failed messages: got %+v (%v), want message 1", rows, err)
		}
		refusing = false
		for range 3 {
			clock.pass(10 * time.Second)
			step(t, r)
		}
		to.want(t, "1", "2", "3")
		clock.pass(time.Hour)
		step(t, r)
		step(t, r)
		to.want(t, "1", "2", "3", "future", "held by future")
	})
}

// Other messages wait for a destination that confirms nothing, until the publisher gives up. The tests of the destination must therefore
// use a small part of the time.
func TestUnconfirmedMessagesUseLittleTime(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		tests := 0
		to := &recorder{before: func(messages []*reprise.Message) error {
			e := &reprise.BatchError{}
			for i, m := range messages {
				if m.RoutingKey == "silent" {
					e.Failed = append(e.Failed, &reprise.MessageError{Index: i, Err: reprise.ErrUnconfirmed})
				}
			}
			if len(e.Failed) == 0 {
				return nil
			}
			tests++
			clock.pass(reprise.DefaultConfirmTimeout)
			return e
		}}
		b := db.box(t, clock)
		r := relay(t, b, to)
		began := clock.Now()
		for clock.Now().Sub(began) < 10*time.Minute {
			m := message("silent")
			m.RoutingKey = "silent"
			schedule(t, b, m)
			step(t, r)
			clock.pass(time.Second)
		}
		if tests < 2 || tests > 6 {
			t.Errorf("tests of the destination in 10 minutes: got %d, want 2 to 6", tests)
		}
	})
}

// errKilled marks the place at which a relay is killed.
var errKilled = errors.New("killed")

// kill makes a relay end at once, like a killed process, when its publisher returns errKilled.
func kill(t *testing.T, r *outbox.Relay, to *recorder, before bool) {
	t.Helper()
	end := func([]*reprise.Message) error { runtime.Goexit(); return errKilled }
	if before {
		to.before = end
	} else {
		to.after = end
	}
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = outbox.Step(t.Context(), r) })
	wg.Wait()
	to.before, to.after = nil, nil
}

func TestKilledRelayLosesNothing(t *testing.T) {
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprint("before the confirm: ", before), func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, db database) {
				clock := newClock()
				b, to := db.box(t, clock), &recorder{}
				schedule(t, b, message("m"))
				kill(t, relay(t, b, to), to, before)
				want := []string{"m"}[:map[bool]int{true: 0, false: 1}[before]]
				to.want(t, want...)
				other := relay(t, b, to)
				step(t, other)
				to.want(t, want...) // the killed relay has the lease
				clock.pass(outbox.DefaultLease)
				step(t, other)
				to.want(t, append(want, "m")...)
			})
		})
	}
}

func TestOneRelayHasTheLease(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		b, to, spare := db.box(t, clock), &recorder{}, &recorder{}
		first, second := relay(t, b, to), relay(t, b, spare)
		schedule(t, b, message("0"))
		step(t, first)
		for n := range 3 {
			schedule(t, b, message(fmt.Sprint(n+1)))
			step(t, second)
			step(t, first)
			clock.pass(outbox.DefaultLease - time.Millisecond)
			if held, err := outbox.Renew(t.Context(), second); held || err != nil {
				t.Fatalf("renewal by a relay without the lease: got %v, %v", held, err)
			}
			if held, err := outbox.Renew(t.Context(), first); !held || err != nil {
				t.Fatalf("renewal by the relay with the lease: got %v, %v", held, err)
			}
		}
		to.want(t, "0", "1", "2", "3")
		spare.want(t)
		clock.pass(outbox.DefaultLease)
		schedule(t, b, message("after"))
		step(t, second)
		spare.want(t, "after")
		if held, err := outbox.Renew(t.Context(), first); held || err != nil {
			t.Errorf("renewal of a lost lease: got %v, %v", held, err)
		}
	})
}

func TestRunPublishesAndStops(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		b, to := db.box(t, nil), &recorder{}
		if err := b.Every(outbox.Entry{Name: "e", Spec: "* * * * *"}); err != nil {
			t.Fatal(err)
		}
		r := relay(t, b, to)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		tx := begin(t, db)
		insert(t, b, tx, message("a"))
		commit(t, tx)
		testkit.Eventually(t, timeout, func() error {
			if got := to.ids(); len(got) == 0 || got[0] != "a" {
				return fmt.Errorf("published messages: got %v, want a", got)
			}
			return nil
		})
		cancel()
		wg.Wait()
		if s, err := b.Status(t.Context()); err != nil || s.Relay {
			t.Errorf("status after the stop: got %+v, %v; want no relay", s, err)
		}
	})
}

// Many messages that cannot leave, because their destination refuses them, delay the messages to other destinations by a batch at
// most, and leave when the destination accepts them.
func TestRefusingDestinationDelaysNoOther(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		refusing, attempts := true, 0
		b, to := db.box(t, clock), &recorder{}
		to.before = func(messages []*reprise.Message) error {
			e := &reprise.BatchError{}
			for i, m := range messages {
				if m.RoutingKey == "full" {
					if attempts++; refusing {
						e.Failed = append(e.Failed, &reprise.MessageError{Index: i, Err: reprise.ErrNacked})
					}
				}
			}
			if len(e.Failed) > 0 {
				to.mu.Lock()
				defer to.mu.Unlock()
				for _, m := range messages {
					if m.RoutingKey != "full" {
						to.stored = append(to.stored, *m)
					}
				}
				return e
			}
			return nil
		}
		const full = 3000
		for range full / 500 {
			batch := payloads(500, 0)
			for _, m := range batch {
				m.RoutingKey = "full"
			}
			schedule(t, b, batch...)
		}
		r := relay(t, b, to, func(c *outbox.RelayConfig) { c.Batch = 10 })
		for range 400 { // reads all messages, and attempts some of them
			if _, err := outbox.Step(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{}
		before := attempts
		for i := range 20 {
			clock.pass(7 * time.Second)
			schedule(t, b, message(fmt.Sprint(i)))
			want = append(want, fmt.Sprint(i))
			for range 2 {
				if _, err := outbox.Step(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			to.want(t, want...)
		}
		if n := attempts - before; n > 20 {
			t.Errorf("got %d attempts to publish to the destination in %d steps, want at most one each time it is tested", n, 40)
		}
		refusing = false
		for range 10 {
			clock.pass(31 * time.Second)
			step(t, r)
		}
		if got := len(to.ids()); got != full+len(want) {
			t.Errorf("got %d published messages, want %d", got, full+len(want))
		}
	})
}

// Also a relay without messages has the lease, so that Status does not report its absence.
func TestIdleRelayHasTheLease(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		clock := newClock()
		b, to := db.box(t, clock), &recorder{}
		first, second := relay(t, b, to), relay(t, b, to)
		for range 2 {
			step(t, first)
			step(t, second)
			if s, err := b.Status(t.Context()); err != nil || !s.Relay {
				t.Errorf("Status: got %+v, %v; want a relay", s, err)
			}
			clock.pass(2 * outbox.DefaultLease)
			if s, err := b.Status(t.Context()); err != nil || s.Relay {
				t.Errorf("Status after the lease: got %+v, %v; want no relay", s, err)
			}
			first = relay(t, b, to)
		}
	})
}
