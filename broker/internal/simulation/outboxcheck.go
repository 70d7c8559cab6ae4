package simulation

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker/internal/simulation/archive"
	"github.com/reprisemq/reprise/outbox"
)

// The promises of package outbox, in the words of its documentation.
const (
	promiseLeaves   = "a message of a committed transaction is published at least once, always with the same MessageID"
	promiseRollback = "a message of a transaction that was rolled back never leaves"
	promiseDue      = "a message never leaves before it is due, by the clock of the database"
	promiseCancel   = "a message that Cancel counts as Done never leaves"
	promiseRead     = "Done is the number of changed messages that no relay has read"
	promiseKey      = "messages of one Key leave in the order of the commits"
	promiseOccurs   = "an occurrence of an Entry has one MessageID, and leaves at least once unless it is older than Entry.CatchUp, or is missed and not the latest"
	promiseUnique   = "while Message.Unique is taken, no second message with the key is inserted"
	promiseAlone    = "one relay publishes at a time"
	promiseAgain    = "a message can leave again if a relay crashes or loses its lease"
)

func init() {
	for _, c := range []struct {
		promise string
		check   func(o *outboxes, promise string)
	}{
		{promiseLeaves, (*outboxes).checkLeft},
		{promiseRollback, (*outboxes).checkRollback},
		{promiseCancel, (*outboxes).checkCanceled},
		{promiseAgain, (*outboxes).checkAgain},
		{promiseOccurs, (*outboxes).checkOccurrences},
	} {
		RegisterCheck(Check{Promise: c.promise, In: "outbox/doc.go", Check: func(l *Life, promise string) {
			if o := l.outboxes(); o != nil {
				c.check(o, promise)
			}
		}})
	}
}

// departure is the publish of a message by a relay.
type departure struct {
	x *scheduled
	s *Sending
}

// leaving records that a relay publishes messages.
func (o *outboxes) leaving(messages []*reprise.Message) []departure {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]departure, len(messages))
	for i, m := range messages {
		x := o.all[m.MessageID]
		if x == nil {
			o.l.Broken(promiseLeaves, "unknown message %q with the body %q", m.MessageID, m.Body)
			continue
		}
		if now := time.Now(); now.Add(time.Millisecond).Before(x.due) {
			o.l.Broken(promiseDue, "due %v: %s", x.due.Sub(o.l.Began), x.m.History())
		}
		o.checkOrder(x)
		all[i] = departure{x, o.l.Book.Sending(x.m)}
	}
	return all
}

// left records the result of a publish.
func (o *outboxes) left(all []departure, err error) {
	errs := make([]error, len(all))
	if some, ok := errors.AsType[*reprise.BatchError](err); ok {
		for _, f := range some.Failed {
			errs[f.Index] = f.Err
		}
	} else {
		for i := range errs {
			errs[i] = err
		}
	}
	for i, d := range all {
		if d.x != nil {
			o.l.Book.Sent(d.x.m, d.s, errs[i])
		}
	}
}

// checkOrder checks that the earlier messages of a key are confirmed. The caller holds the lock.
func (o *outboxes) checkOrder(x *scheduled) {
	if x.key == "" {
		return
	}
	b := o.l.Book
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range o.keys[x.key] {
		if e == x {
			return
		}
		if e.state == committed && !e.canceled && !e.removed && !e.vague && !e.changing && !e.m.confirmed() {
			o.l.Broken(promiseKey, "key %q: %s\n\tleaves before %s", x.key, x.m.History(), e.m.History())
			return
		}
	}
}

// alone checks that no other relay is publishing.
func (o *outboxes) alone(p *relayProcess) {
	p.mu.Lock()
	p.publishing = true
	p.mu.Unlock()
	for _, other := range o.running() {
		if other == p {
			continue
		}
		other.mu.Lock()
		both := other.publishing && !other.killed
		other.mu.Unlock()
		if both && !o.disturbed(time.Now().Add(-o.Lease-time.Minute), time.Now()) {
			o.l.Broken(promiseAlone, "%s and %s", p.name, other.name)
		}
	}
}

// disturbed reports whether a relay may have crashed or lost its lease.
func (o *outboxes) disturbed(from, to time.Time) bool {
	found := len(o.l.Disturbed(outboxName, from, to)) > 0
	for n := range o.Processes {
		found = found || len(o.l.Disturbed(relayName(n), from, to, "crash", "database")) > 0
	}
	return found
}

// placed records the order of messages that were inserted in an open transaction, and checks their unique keys. No other transaction
// can insert messages.
func (o *outboxes) placed(all []*scheduled, messages []*outbox.Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for i, x := range all {
		x.program = true
		x.latest = now
		if in := messages[i].In; in > 0 {
			x.latest = now.Add(in)
		} else if at := messages[i].At; at.After(now) {
			x.latest = at
		}
		if x.unique != "" {
			o.checkUnique(x, messages[i], now)
		}
		if messages[i].Duplicate {
			x.state = rolledBack
			continue
		}
		if x.unique != "" {
			o.uniques[x.unique] = append(o.uniques[x.unique], x)
		}
		if x.key != "" {
			o.keys[x.key] = append(o.keys[x.key], x)
		}
	}
}

// checkUnique compares the result of an insert with the earlier messages of a unique key. The caller holds the lock.
func (o *outboxes) checkUnique(x *scheduled, got *outbox.Message, now time.Time) {
	possible := false
	for _, e := range o.uniques[x.unique] {
		taken := e.state == committed && !e.canceled && !e.vague && !e.changing && now.Before(e.due.Add(e.window-time.Millisecond))
		if taken && (!got.Duplicate || got.MessageID != e.m.ID) {
			o.l.Broken(promiseUnique, "key %q is taken by %s until %v, got duplicate %v of %q", x.unique, e.m.History(), e.due.Add(e.window).Sub(o.l.Began), got.Duplicate, got.MessageID)
		}
		free := e.state == rolledBack || e.canceled || !e.vague && !e.changing && now.After(e.latest.Add(e.window+2*time.Minute))
		possible = possible || !free && got.MessageID == e.m.ID
	}
	if got.Duplicate && !possible {
		o.l.Broken(promiseUnique, "duplicate of %q, but key %q is free", got.MessageID, x.unique)
	}
}

// occurs records an occurrence that a process inserts. If an earlier transaction with the occurrence was rolled back, it records the new
// position.
func (o *outboxes) occurs(e Periodic, id string, at time.Time) *scheduled {
	if age := time.Since(at); age > o.CatchUp+2*time.Minute {
		o.l.Broken(promiseOccurs, "%s is inserted %v after its time", id, age)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	x := o.all[id]
	if x == nil {
		x = &scheduled{m: o.l.Book.Add(id, e.Work, 20), due: at, latest: at, state: unclear}
		o.all[id] = x
		o.order = append(o.order, x)
	}
	if e.Keyed {
		x.key = e.Name
		var others []*scheduled
		for _, other := range o.keys[x.key] {
			if other != x {
				others = append(others, other)
			}
		}
		o.keys[x.key] = append(others, x)
	}
	return x
}

// resolve determines the results of the commits that are unclear, from the rows of the program. The caller holds the lock.
func (o *outboxes) resolve() {
	stored := map[string]bool{}
	pool := sql.OpenDB(archive.NewDatabase(o.file))
	defer pool.Close()
	rows, err := pool.Query("SELECT id FROM program")
	if err != nil {
		o.l.Broken("simulation", "cannot read the rows of the program: %v", err)
		return
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			o.l.Broken("simulation", "cannot read the rows of the program: %v", err)
		}
		stored[id] = true
	}
	for id, x := range o.all {
		if x.program && x.state == unclear {
			if x.state = rolledBack; stored[id] {
				x.state = committed
			}
		}
	}
}

// each calls do for each message.
func (o *outboxes) each(do func(x *scheduled)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.resolve()
	for _, x := range o.order {
		do(x)
	}
}

func (o *outboxes) checkLeft(promise string) {
	o.each(func(x *scheduled) {
		if x.state == committed && !x.canceled && !x.removed && !x.vague && !x.m.confirmed() && x.m.Work != "" {
			o.l.Broken(promise, "%s", x.m.History())
		}
	})
}

func (o *outboxes) checkRollback(promise string) {
	o.each(func(x *scheduled) {
		if x.state == rolledBack && len(x.m.Sendings) > 0 {
			o.l.Broken(promise, "%s", x.m.History())
		}
	})
}

func (o *outboxes) checkCanceled(promise string) {
	o.each(func(x *scheduled) {
		if x.canceled && len(x.m.Sendings) > 0 {
			o.l.Broken(promise, "%s", x.m.History())
		}
	})
}

// checkAgain checks that a fault explains each publish of a message that the broker had confirmed before.
func (o *outboxes) checkAgain(promise string) {
	o.each(func(x *scheduled) {
		for i, first := range x.m.Sendings {
			for _, again := range x.m.Sendings[i+1:] {
				if first.Err == nil && !first.Open && !o.disturbed(first.Began.Add(-o.Lease-time.Minute), again.Began) {
					o.l.Broken(promise, "no fault occurred: %s", x.m.History())
					return
				}
			}
		}
	})
}

func (o *outboxes) checkOccurrences(promise string) {
	o.each(func(x *scheduled) {
		name, at, found := parseOccurrence(x.m.ID)
		for _, e := range o.Periodic {
			if found && e.Name == name && !o.isOccurrence(e, at) {
				o.l.Broken(promise, "not an occurrence of %v: %s", e, x.m.History())
			}
		}
	})
	for version, v := range o.versions {
		until := v.changed
		if until.IsZero() {
			until = o.drained
		}
		if from, ok := o.healthy(v.settled, until); !v.settled.IsZero() && ok {
			for _, e := range o.Periodic {
				o.checkPeriod(e, time.Duration(e.minutes(version))*time.Minute, from.Add(tickWithin), until, promise)
			}
		}
	}
}

// tickWithin is the maximum time until a process without faults inserts an occurrence.
const tickWithin = 90 * time.Second

// isOccurrence reports whether a time matches a specification of any version.
func (o *outboxes) isOccurrence(e Periodic, at time.Time) bool {
	for version := range o.versions {
		if at.Equal(at.Truncate(time.Duration(e.minutes(version)) * time.Minute)) {
			return true
		}
	}
	return false
}

// checkPeriod checks the occurrences from a time until another one, in which all processes have had the same specification.
func (o *outboxes) checkPeriod(e Periodic, period time.Duration, from, until time.Time, promise string) {
	for at := from.Truncate(period).Add(period); at.Before(until); at = at.Add(period) {
		by := at.Add(o.CatchUp)
		if next := at.Add(period); e.Missed == outbox.MissedLatest && next.Before(by) {
			by = next
		}
		if until.Before(by) {
			by = until
		}
		if _, ok := o.healthy(at, by); !ok {
			continue
		}
		o.l.Count("outbox: occurrences checked")
		id := fmt.Sprintf("cron:default/%s/%s", e.Name, at.UTC().Format(time.RFC3339))
		o.mu.Lock()
		x := o.all[id]
		lost := x == nil || !x.canceled && !x.removed && !x.vague && !x.m.confirmed()
		o.mu.Unlock()
		if lost {
			history := "not inserted"
			if x != nil {
				history = x.m.History()
			}
			o.l.Broken(promise, "%s of %v has not left: %s", id, e, history)
		}
	}
}

// healthy returns the start of the first time span of tickWithin in a period in which a process runs without a fault.
func (o *outboxes) healthy(from, to time.Time) (at time.Time, ok bool) {
	for at = from; !at.Add(tickWithin).After(to); at = at.Add(10 * time.Second) {
		end := at.Add(tickWithin)
		if len(o.l.Disturbed(outboxName, at, end)) > 0 {
			continue
		}
		for n := range o.Processes {
			if len(o.l.Disturbed(relayName(n), at, end, "crash", "stop", "database")) == 0 {
				return at, true
			}
		}
	}
	return at, false
}
