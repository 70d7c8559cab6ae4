package simulation

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/reprisemq/reprise/broker/internal/simulation/archive"
	"github.com/reprisemq/reprise/outbox"
)

// nowhere is a routing key without a queue.
const nowhere = "nowhere"

// scheduled is a message that a process has inserted into the outbox, or was about to insert. The lock of outboxes guards it.
type scheduled struct {
	m        *Message
	key      string
	unique   string
	window   time.Duration // Message.UniqueFor
	due      time.Time     // at this time or later, with an error of less than 1 ms
	latest   time.Time     // due at this time or earlier
	state    insertState
	program  bool // inserted together with a row of the program
	changing bool // Cancel or Move has not returned

	canceled, removed bool // Cancel has counted it as Done, or as Attempted
	vague             bool // an error of Cancel or Move, so it may have been changed
}

// insertState is the result of an insert.
type insertState int

const (
	inserting insertState = iota
	committed
	rolledBack // or not inserted, because another message has the unique key
	unclear    // the result of the commit is unknown
)

func init() {
	within := func(least, most time.Duration) func(*rand.Rand) (int, time.Duration) {
		return func(r *rand.Rand) (int, time.Duration) { return r.IntN(1000), between(r, least, most) }
	}
	for _, a := range []struct {
		name   string
		weight int
		fault  bool
		draw   func(random *rand.Rand) (n int, lasts time.Duration)
		do     func(o *outboxes, p *relayProcess, s Step)
	}{
		{"outbox-insert", 25, false, drawInsert, (*outboxes).insert},
		{"outbox-cancel", 15, false, within(time.Millisecond, 10*time.Minute), (*outboxes).changeSome},
		{"outbox-move", 10, false, within(time.Millisecond, 10*time.Minute), (*outboxes).changeSome},
		{"outbox-cancel-publishing", 8, false, within(time.Millisecond, time.Second), func(_ *outboxes, p *relayProcess, _ Step) { p.strikeAt("cancel") }},
		{"outbox-kill", 6, true, within(10*time.Second, 10*time.Minute), (*outboxes).killSome},
		{"outbox-kill-publishing", 8, true, within(time.Second, 2*time.Minute), func(_ *outboxes, p *relayProcess, s Step) {
			p.strikeAt([]string{"before", "after"}[s.N%2])
		}},
		{"outbox-kill-statement", 8, true, within(time.Second, 2*time.Minute), func(o *outboxes, p *relayProcess, s Step) {
			p.db.At(1+s.N%40, s.N%3 > 0, func() { o.kill(p, s.For) })
		}},
		{"outbox-stop", 4, false, within(time.Second, 10*time.Minute), func(o *outboxes, p *relayProcess, s Step) { o.stop(p, s.For) }},
		{"outbox-change-periodic", 3, false, within(time.Second, 5*time.Minute), func(o *outboxes, _ *relayProcess, s Step) { o.deploy(s.For) }},
		{"outbox-database", 8, true, within(time.Second, 4*time.Minute), (*outboxes).breakDatabase},
	} {
		RegisterAct(Act{
			Name: a.name, Weight: a.weight, Fault: a.fault,
			Fits: func(s Shape) bool { return s.Outbox != nil },
			Draw: func(random *rand.Rand, s Shape) []Step {
				step := Step{At: upTo(random, s.Horizon), On: relayName(random.IntN(s.Outbox.Processes))}
				step.N, step.For = a.draw(random)
				if a.name != "outbox-kill-statement" && a.name != "outbox-kill-publishing" && a.name != "outbox-cancel-publishing" {
					return []Step{step}
				}
				if random.IntN(2) == 0 { // while occurrences are inserted
					step.At, step.N, step.For = max(time.Minute, step.At.Round(time.Minute))-upTo(random, time.Second), random.IntN(15), upTo(random, 20*time.Second)
					return []Step{step}
				}
				insert := Step{At: step.At, Act: "outbox-insert", On: step.On}
				insert.N, _ = drawInsert(random)
				return []Step{step, insert}
			},
			Do: func(l *Life, s Step) {
				o := l.outboxes()
				for _, p := range o.running() {
					if p.name == s.On {
						l.Count(a.name)
						o.acts.Add(1)
						l.Go(func() {
							defer o.acts.Add(-1)
							a.do(o, p, s)
						})
					}
				}
			},
		})
	}
}

// drawInsert draws the number of messages, and the time until the end of the transaction.
func drawInsert(random *rand.Rand) (n int, lasts time.Duration) {
	n = 1 + random.IntN(oneOf(random, 1, 10, 60))
	switch k := random.IntN(20); {
	case k == 0:
		lasts = upTo(random, 40*time.Second)
	case k < 6:
		lasts = upTo(random, 3*time.Second)
	}
	return n, lasts
}

// draw draws the messages of a step.
func (o *outboxes) draw(s Step, random *rand.Rand) (all []*scheduled, messages []*outbox.Message) {
	now := time.Now()
	for i := range s.N {
		w := oneOf(random, o.l.Script.Shape.Works...)
		b := findDesign(w.Design).Build(w)
		if random.IntN(50) == 0 {
			w, b = Work{}, built{key: nowhere}
		}
		m := o.l.Book.Add(fmt.Sprintf("%x-%d", s.Seed, i), w.Name, random.IntN(300))
		x := &scheduled{m: m, due: now}
		message := &outbox.Message{Message: *m.publishing(b)}
		switch n := random.IntN(10); {
		case n < 4:
		case n < 8:
			message.In = between(random, time.Millisecond, 8*time.Minute)
			x.due = now.Add(message.In)
		default:
			message.At = now.Add(upTo(random, 10*time.Minute) - time.Minute)
			if message.At.After(now) {
				x.due = message.At
			}
		}
		x.latest = x.due
		if random.IntN(3) == 0 {
			x.key = oneOf(random, "a", "b", "c")
		}
		if i == 0 && random.IntN(2) == 0 {
			x.unique, x.window = oneOf(random, "u", "v"), between(random, time.Second, time.Hour)
		}
		message.Key, message.Unique, message.UniqueFor = x.key, x.unique, x.window
		all, messages = append(all, x), append(messages, message)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range all {
		o.all[x.m.ID] = x
		o.order = append(o.order, x)
	}
	return all, messages
}

// insert inserts messages in a transaction with a row of the program for each message.
func (o *outboxes) insert(p *relayProcess, s Step) {
	random := s.Random()
	all, messages := o.draw(s, random)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if random.IntN(5) == 0 {
		o.schedule(ctx, p, all, messages)
		return
	}
	commit := random.IntN(4) > 0
	result := rolledBack
	tx, err := p.pool.BeginTx(ctx, nil)
	if err == nil {
		result, err = o.transact(ctx, p, tx, all, messages, s.For, commit)
	}
	o.inserted(all, result, err)
}

// transact runs a transaction to its end.
func (o *outboxes) transact(ctx context.Context, p *relayProcess, tx *sql.Tx, all []*scheduled, messages []*outbox.Message, lasts time.Duration, commit bool) (insertState, error) {
	defer func() { _ = tx.Rollback() }()
	for _, x := range all {
		if _, err := tx.ExecContext(ctx, "INSERT INTO program (id) VALUES ($1)", x.m.ID); err != nil {
			return rolledBack, err
		}
	}
	if err := p.box.Insert(ctx, tx, messages...); err != nil {
		return rolledBack, err
	}
	o.placed(all, messages)
	if lasts > 0 { // no other process can write
		d := o.l.Disturb(outboxName, "locked")
		defer d.End()
		o.l.Explain("database is locked")
		select {
		case <-time.After(lasts):
		case <-p.dead:
		}
	}
	if !commit {
		return rolledBack, nil
	}
	if err := tx.Commit(); err != nil {
		return unclear, err
	}
	return committed, nil
}

// schedule inserts messages without a row of the program. They have no key, because the order of the inserts is not known.
func (o *outboxes) schedule(ctx context.Context, p *relayProcess, all []*scheduled, messages []*outbox.Message) {
	o.mu.Lock()
	for i, x := range all {
		x.key, messages[i].Key = "", ""
		x.unique, x.window, messages[i].Unique, messages[i].UniqueFor = "", 0, "", 0
	}
	o.mu.Unlock()
	if err := p.box.Schedule(ctx, messages...); err != nil {
		o.inserted(all, unclear, err)
		return
	}
	o.inserted(all, committed, nil)
}

// inserted records the result of an insert.
func (o *outboxes) inserted(all []*scheduled, result insertState, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range all {
		if x.state == inserting {
			x.state = result
		}
		o.l.Book.Note(x.m.ID, "inserted: %d (%v), due %v, key %q", x.state, err, x.due.Sub(o.l.Began), x.key)
	}
}

// changeSome cancels or moves a message. It prefers messages that are due soon.
func (o *outboxes) changeSome(p *relayProcess, s Step) {
	random := s.Random()
	o.mu.Lock()
	var candidates []*scheduled
	for _, x := range o.order {
		if random.IntN(4) == 0 || !x.latest.Before(time.Now()) {
			candidates = append(candidates, x)
		}
	}
	o.mu.Unlock()
	if len(candidates) == 0 {
		return
	}
	x := oneOf(random, candidates...)
	if wait := time.Until(x.dueNow(o)); random.IntN(2) == 0 && wait > 0 && wait < 10*time.Minute {
		select {
		case <-time.After(wait + upTo(random, 20*time.Millisecond) - 10*time.Millisecond):
		case <-p.dead:
			return
		}
	}
	if s.Act == "outbox-move" {
		o.move(p, x, time.Now().Add(s.For-time.Second))
	} else {
		o.cancel(p, x)
	}
}

func (x *scheduled) dueNow(o *outboxes) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return x.due
}

// cancel cancels a message.
func (o *outboxes) cancel(p *relayProcess, x *scheduled) {
	o.change(x, func(ctx context.Context) (outbox.Result, error) {
		return p.box.Cancel(ctx, outbox.Filter{MessageID: x.m.ID})
	}, func(r outbox.Result) {
		x.canceled, x.removed = x.canceled || r.Done > 0, x.removed || r.Attempted > 0
		if r.Done > 0 {
			o.l.Count("outbox: canceled")
		}
	})
}

// move moves a message.
func (o *outboxes) move(p *relayProcess, x *scheduled, to time.Time) {
	now := time.Now()
	if to.Before(now) {
		to = now
	}
	o.mu.Lock()
	before := x.due
	if to.Before(x.due) {
		x.due = to
	}
	o.mu.Unlock()
	o.change(x, func(ctx context.Context) (outbox.Result, error) {
		return p.box.Move(ctx, outbox.Filter{MessageID: x.m.ID}, to)
	}, func(r outbox.Result) {
		x.due = before
		if r.Done > 0 {
			o.l.Count("outbox: moved")
			x.due, x.latest = to, time.Now()
			if to.After(x.latest) {
				x.latest = to
			}
		}
	})
}

// change calls Cancel or Move, and compares the result with the history of the message.
func (o *outboxes) change(x *scheduled, call func(context.Context) (outbox.Result, error), record func(outbox.Result)) {
	o.mu.Lock()
	if x.changing {
		o.mu.Unlock()
		return
	}
	x.changing = true
	waits := x.state == committed && !x.canceled && !x.removed && !x.vague
	o.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	left := o.l.Book.sendings(x.m)
	r, err := call(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	x.changing = false
	o.l.Book.Note(x.m.ID, "changed: %+v, %v", r, err)
	switch {
	case err != nil:
		x.vague = true
	case r.Done > 0 && left > 0:
		o.l.Broken(promiseRead, "%+v: %s", r, x.m.History())
	case r == outbox.Result{} && waits && o.l.Book.sendings(x.m) == 0:
		o.l.Broken(promiseLeaves, "not found: %s", x.m.History())
	}
	if err == nil {
		record(r)
	}
}

// sendings returns the number of publishes of a message.
func (b *Book) sendings(m *Message) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(m.Sendings)
}

// killSome kills a process, or all processes.
func (o *outboxes) killSome(p *relayProcess, s Step) {
	if s.N%2 == 0 {
		o.kill(p, s.For)
		return
	}
	for _, p := range o.running() {
		o.kill(p, s.For)
	}
}

// strikeAt requests a strike.
func (p *relayProcess) strikeAt(when string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.strike = when
}

// deploy changes the specifications of the periodic messages, and restarts one process after the other.
func (o *outboxes) deploy(pause time.Duration) {
	if len(o.Periodic) == 0 {
		return
	}
	o.mu.Lock()
	o.versions[o.version].changed = time.Now()
	o.version++
	o.versions = append(o.versions, &outboxVersion{})
	o.mu.Unlock()
	for _, p := range o.running() {
		o.stop(p, time.Second)
		select {
		case <-time.After(pause):
		case <-p.dead:
		}
	}
}

// breakDatabase makes the statements of a process hang or fail for a while.
func (o *outboxes) breakDatabase(p *relayProcess, s Step) {
	faults := []archive.Fault{
		{Hangs: true},
		{Hangs: true, Writes: true},
		{Hangs: true, Writes: true, After: true},
		{Code: archive.CodeIOError},
		{Code: archive.CodeFull, Writes: true},
	}
	d := o.l.Disturb(p.name, "database")
	heal := p.db.Break(faults[s.N%len(faults)])
	o.l.Explain(p.name + ": outbox ")
	select {
	case <-time.After(s.For):
	case <-p.dead:
	}
	heal()
	d.End()
}
