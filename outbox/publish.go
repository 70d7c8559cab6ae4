package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// maxRounds is the maximum number of messages of a key in a batch. Each of them waits for the confirm of the previous one.
const maxRounds = 32

// publish publishes the items of a batch, deletes the confirmed rows, and records the failures. It returns whether more rows can
// be published now.
//
// An item whose key has an earlier row is published only after the confirm of this row in the same batch. Otherwise, a
// message that the broker refuses would leave after the later messages of its key.
func (r *Relay) publish(ctx context.Context, now int64, items []*item) (again bool, err error) {
	b := batch{now: now, items: items, followers: map[int64]*item{}, failures: map[failure][]int64{}}
	for _, s := range r.dests {
		s.probed = false // also if the last batch was interrupted
	}
	for _, m := range items {
		switch {
		case m.invalid != nil:
			b.failed(m, m.invalid)
		case m.previous != 0:
			b.followers[m.previous] = m
		case r.dests.admits(m, now):
			b.round = append(b.round, m)
		}
	}
	for n := 0; len(b.round) > 0 && err == nil; n++ {
		if n == maxRounds || !r.leased() {
			again = true
			break
		}
		err = r.publishRound(ctx, &b)
	}
	return r.settle(ctx, &b, again, err)
}

// batch is the state of a batch.
type batch struct {
	now       int64 // time of the last result, which can be much later than the start
	items     []*item
	round     []*item         // to publish next
	followers map[int64]*item // by the previous row of their key
	confirmed []int64         // rows to delete
	failures  map[failure][]int64
	recovered bool // a destination accepts messages again
}

// failure is an error of rows with the same number of earlier attempts.
type failure struct {
	text     string
	attempts int
}

func (b *batch) failed(m *item, err error) {
	f := failure{brief(err), m.attempts}
	b.failures[f] = append(b.failures[f], m.seq)
}

// publishRound publishes the items of a round, and determines the next round. It returns an error if the broker accepts no messages.
func (r *Relay) publishRound(ctx context.Context, b *batch) error {
	messages := make([]*reprise.Message, len(b.round))
	for i, m := range b.round {
		messages[i] = &m.message
	}
	began := r.wall()
	errs := errorsOf(r.to.PublishBatch(ctx, messages), len(messages))
	took := max(0, r.wall().Sub(began))
	b.now += took.Milliseconds()
	var next []*item
	var broken error
	for i, m := range b.round {
		switch err := errs[i]; {
		case err == nil:
			b.confirmed = append(b.confirmed, m.seq)
			b.recovered = r.dests.succeeded(m) || b.recovered
			if f := b.followers[m.seq]; f != nil && r.dests.admits(f, b.now) {
				delete(b.followers, m.seq)
				next = append(next, f)
			}
		case unsent(err):
			broken = err
		default:
			b.failed(m, err)
			r.dests.failed(m, b.now, took, err)
		}
	}
	b.round = next
	return broken
}

// settle deletes the confirmed rows and records the failures. A relay that has a confirm may always delete the row, even without a
// lease, because a row is never changed into another message.
func (r *Relay) settle(ctx context.Context, b *batch, again bool, cause error) (bool, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	var err error
	if bad := r.delete(ctx, b.confirmed); bad != nil {
		err = fmt.Errorf("cannot delete published messages: %w", bad)
	} else if bad := r.record(ctx, b.now, b.failures); bad != nil {
		err = fmt.Errorf("cannot record failed messages: %w", bad)
	}
	if err = errors.Join(cause, err); err != nil {
		for _, m := range b.items {
			r.scan.again(m.due)
		}
		return false, err
	}
	for _, m := range b.round { // of an interrupted sequence of rounds
		r.scan.again(m.due)
	}
	if b.recovered { // find the messages that have waited for it
		r.scan.running, r.scan.pause = false, time.Time{}
		r.scan.from = min(r.scan.from, r.scan.low)
	}
	return again || b.recovered, nil
}

func (r *Relay) delete(ctx context.Context, seqs []int64) error {
	if len(seqs) == 0 {
		return nil
	}
	condition, args := r.box.among("seq", "$1", seqs)
	_, err := r.box.db.Write(ctx, `DELETE FROM {messages} WHERE `+condition, args...)
	return err
}

// Delays between the attempts to publish a message.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

func backoff(attempts int) time.Duration { return min(lastRetry, firstRetry<<min(attempts, 20)) }

// record stores the failures in the rows, with the time of the next attempt. The rows keep their due time, so Cancel does not
// report that they never left.
func (r *Relay) record(ctx context.Context, now int64, failures map[failure][]int64) error {
	if len(failures) == 0 {
		return nil
	}
	return r.box.transaction(ctx, func(tx *sqlkit.Tx) error {
		for f, seqs := range failures {
			delay := backoff(f.attempts)
			r.log.Warn("outbox message not published", "messages", len(seqs), "error", f.text, "attempt", f.attempts+1, "next_try", delay)
			condition, args := r.box.among("seq", "$3", seqs)
			args = append([]any{now + delay.Milliseconds(), f.text}, args...)
			if _, err := tx.Exec(`UPDATE {messages} SET attempts = attempts + 1, retry_at = $1, error = $2 WHERE `+condition, args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// errorsOf returns the error of each message of a batch.
func errorsOf(err error, n int) []error {
	errs := make([]error, n)
	if some, ok := errors.AsType[*reprise.BatchError](err); ok {
		for _, f := range some.Failed {
			errs[f.Index] = f.Err
		}
		return errs
	}
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// unsent reports whether an error does not depend on the message: the client could not send anything.
func unsent(err error) bool {
	for _, target := range []error{reprise.ErrDisconnected, reprise.ErrBlocked, reprise.ErrClosed} {
		if errors.Is(err, target) {
			return true
		}
	}
	return !errors.Is(err, reprise.ErrUnconfirmed) && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

// brief returns an error as text that every database can store.
func brief(err error) string {
	text := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\x00", ""), "�")
	for len(text) > 500 {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// destinations contains the destinations that have failed. While a destination fails, a batch contains at most one message to it, so that
// messages to other destinations do not wait.
type destinations map[[2]string]*suspension

type suspension struct {
	until  int64 // ms since 1970
	errors int
	probed bool // the batch contains a message to the destination
}

func destination(m *item) [2]string { return [2]string{m.message.Exchange, m.message.RoutingKey} }

// maxExcluded is the maximum number of destinations in the condition of excluded.
const maxExcluded = 8

// excluded returns a condition without messages to destinations that have failed, with its arguments, so that these messages do not
// fill the batches. n is the number of the first argument. The sweep finds the messages later.
func (d destinations) excluded(now int64, n int, args []any) (condition string, all []any) {
	var text strings.Builder
	for to, s := range d {
		if now < s.until && len(args) < n-1+2*maxExcluded {
			fmt.Fprintf(&text, " AND NOT (exchange = $%d AND routing_key = $%d)", len(args)+1, len(args)+2)
			args = append(args, to[0], to[1])
		}
	}
	return text.String(), args
}

// admits reports whether a message may be published now.
func (d destinations) admits(m *item, now int64) bool {
	s := d[destination(m)]
	if s == nil {
		return true
	}
	if now < s.until || s.probed {
		return false
	}
	s.probed = true
	return true
}

// succeeded reports whether the destination had failed before.
func (d destinations) succeeded(m *item) bool {
	to := destination(m)
	failed := d[to] != nil
	delete(d, to)
	return failed
}

// lastSuspension limits the time without an attempt, so that messages leave soon after the destination accepts them again.
const lastSuspension = 30 * time.Second

// failed suspends a destination from the time now. While a relay waits for a confirm, messages to other destinations wait as well. Tests
// of destinations that do not confirm therefore use at most a quarter of the time.
func (d destinations) failed(m *item, now int64, took time.Duration, err error) {
	if errors.Is(err, reprise.ErrInvalidMessage) || isTooLarge(err) {
		return
	}
	s := d[destination(m)]
	if s == nil {
		s = &suspension{}
		d[destination(m)] = s
	} else if s.until > now {
		return // another message of the same round
	}
	pause := min(lastSuspension, backoff(s.errors))
	if errors.Is(err, reprise.ErrUnconfirmed) {
		pause = max(pause, 3*took)
	}
	s.until, s.probed = now+pause.Milliseconds(), false
	s.errors++
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*reprise.TooLargeError](err)
	return ok
}
