package simulation

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reprisemq/reprise"
)

func init() {
	RegisterCheck(Check{
		Promise: "no message is lost: every confirmed message is done or parked",
		In:      "docs/guarantees.md", Check: checkLost,
	})
	RegisterCheck(Check{
		Promise: "after an error of Publish other than ErrUnconfirmed, the message is not stored",
		In:      "docs/guarantees.md", Check: checkRefused,
	})
	RegisterCheck(Check{
		Promise: "a message is retried until its handler succeeds, or parked when its retries are exhausted",
		In:      "docs/failed-messages.md", Check: checkEnd,
	})
	RegisterCheck(Check{
		Promise: "a message is delivered twice only if its consumer, the broker or the publish of its copy failed",
		In:      "docs/guarantees.md", Check: checkRepeats,
	})
	RegisterCheck(Check{
		Promise: "the broker has delivered a redelivered message before",
		In:      "docs/guarantees.md", Check: checkRedelivered,
	})
	RegisterCheck(Check{
		Promise: "a message without an ID gets an ID at its first retry, and keeps the ID",
		In:      "docs/guarantees.md", Check: checkAssigned,
	})
	RegisterCheck(Check{
		Promise: "a retry is never early",
		In:      "docs/delays.md", Check: checkEarly,
	})
	RegisterCheck(Check{
		Promise: "attempts are consecutive and do not exceed the Policy",
		In:      "docs/delays.md", Check: checkAttempts,
	})
}

// confirmed reports whether the broker confirmed at least one publish of the message.
func (m *Message) confirmed() (yes bool) {
	for _, s := range m.Sendings {
		yes = yes || s.Err == nil && !s.Open
	}
	return yes
}

// copies returns the number of publishes that may have stored a copy of the message.
func (m *Message) copies() (n int) {
	for _, s := range m.Sendings {
		if s.Open || s.Err == nil || errors.Is(s.Err, reprise.ErrUnconfirmed) {
			n++
		}
	}
	return n
}

// done returns the number of successful runs of the handler.
func (m *Message) done() (n int) {
	for _, r := range m.Runs {
		if r.Manner == succeeds && !r.Cut && !r.Ended.IsZero() {
			n++
		}
	}
	return n
}

// rejected reports whether a rejecter has received the message.
func (m *Message) rejected() bool {
	return slices.ContainsFunc(m.Runs, func(r *Run) bool { return r.Who == rejecterName })
}

// eachMessage drains the book and calls the function do for each message of each work.
func (l *Life) eachMessage(do func(w Work, d design, b built, m *Message)) {
	l.Book.drain()
	for _, w := range l.Script.Shape.Works {
		d := findDesign(w.Design)
		b := d.Build(w)
		for _, m := range l.Book.Of(w.Name) {
			do(w, d, b, m)
		}
	}
}

func checkLost(l *Life, promise string) {
	l.eachMessage(func(w Work, d design, _ built, m *Message) {
		if !m.confirmed() || m.done() > 0 || m.Parked > 0 || len(m.Losses) > 0 {
			return
		}
		if d.Loses && l.lostByOrder(m) {
			return
		}
		l.Broken(promise, "%s: %s", w.Name, m.History())
	})
}

// lostByOrder reports whether a fault during the settlement of a failed attempt may have lost the message. Such a loss is
// possible if the worker acknowledges the original before it publishes the retry.
func (l *Life) lostByOrder(m *Message) bool {
	for _, r := range m.Runs {
		if r.Manner != succeeds && l.runDisturbed(r) {
			return true
		}
	}
	return false
}

// grace returns the maximum time from a settlement until the broker has stored the acknowledgement on disk. The
// acknowledgement waits for the running commit and for the next one.
func (l *Life) grace() time.Duration { return time.Second + 2*l.Script.Shape.Sync }

// runDisturbed reports whether a fault occurred after the delivery of a run's message and before the broker stored
// the acknowledgement.
func (l *Life) runDisturbed(r *Run) bool {
	to := time.Now()
	if !r.Settled.IsZero() {
		to = r.Settled.Add(l.grace() + l.Script.Shape.Latency)
	}
	if r.process == nil { // another program publishes and consumes on one connection, so a blocked connection delays its acknowledgements
		for _, d := range l.Disturbed(brokerName, r.Began, to, "blocked", "disk") {
			if d.To.After(to) {
				to = d.To.Add(l.grace())
			}
		}
	}
	return l.heldTooLong(r) || len(l.Disturbed(r.Who, r.Began, to)) > 0 || len(l.Disturbed(brokerName, r.Began, to, "stop", "crash", "disk")) > 0
}

func checkRefused(l *Life, promise string) {
	l.Book.drain()
	for _, m := range l.Book.Of("*") {
		if m.copies() == 0 && len(m.Runs)+m.Parked > 0 {
			l.Broken(promise, "delivered after a failed publish: %s", m.History())
		}
		if m.Work == "" {
			for _, s := range m.Sendings {
				if s.Err == nil {
					l.Broken(promise, "confirmed without a queue: %s", m.History())
				}
			}
		}
	}
}

func checkEnd(l *Life, promise string) {
	l.eachMessage(func(w Work, d design, b built, m *Message) {
		if !m.confirmed() || len(m.Losses) > 0 || d.Loses && l.lostByOrder(m) {
			return
		}
		// If a connection is closed, the broker counts each of its unacked deliveries as an attempt, even if the worker had
		// only prefetched the message.
		if d.Once && (m.MessageID == "" || m.Parked > 0 && (m.copies() > 1 || l.mayHaveTwoCopies(m))) {
			return // a delivery of a duplicate counts as an attempt while the other copy is being processed
		}
		crashed := d.Counts && l.queueDisturbed(w, m.Sendings[0].Began) || d.counted(w) && l.losses(w, m.Sendings[0].Began) >= crashLimit
		switch done := m.Plan.done(w.Attempts); {
		case m.rejected(): // the rejecter does not follow the plan
		case !done && w.endless() && m.done() > 0 && !m.Plan.Parks: // another program has made an additional attempt
		case done && m.done() == 0 && !crashed:
			l.Broken(promise, "%s: parked although attempt %d of %d succeeds, %d losses: %s", w.Name, m.Plan.Fails+1, w.Attempts, l.losses(w, m.Sendings[0].Began), m.History())
		case !done && m.Parked == 0:
			l.Broken(promise, "%s: not parked after %d attempts: %s", w.Name, w.Attempts, m.History())
		case !done && m.done() > 0:
			l.Broken(promise, "%s: succeeded instead of being parked: %s", w.Name, m.History())
		}
	})
}

// consumers returns the owners of the connections that consume the work queue.
func (w Work) consumers() (all []string) {
	for n := range w.Workers {
		all = append(all, workerName(w, n))
	}
	for n := range w.Foreign {
		all = append(all, foreignName(w, n))
	}
	return all
}

// endless reports whether other programs on the queue retry messages beyond the permitted number of attempts.
func (w Work) endless() bool { return w.Foreign > 0 && w.Design != "coverart" }

// crashLimit is the default of WorkerConfig.CrashLimit.
const crashLimit = 5

// counted reports whether the work queue, or the worker, counts deliveries whose connection is closed before they are settled.
func (d design) counted(w Work) bool { return d.Quorum || !w.Classic || d.Name == leasesName }

// losses returns the number of disturbances, since a given time, in which a consumer of a work lost its unacked deliveries.
func (l *Life) losses(w Work, since time.Time) (n int) {
	for i := range w.Workers {
		n += len(l.Disturbed(workerName(w, i), since, time.Now(), "interrupted", "crash", "stop"))
	}
	for i := range w.Foreign {
		n += len(l.Disturbed(foreignName(w, i), since, time.Now(), "cut", "half-dead", "stall", "timeout"))
	}
	return n
}

// queueDisturbed reports whether, since a given time, a disturbance affected the broker or a consumer of a work.
func (l *Life) queueDisturbed(w Work, since time.Time) bool {
	return l.disturbedBetween(w, since, time.Now())
}

func (l *Life) disturbedBetween(w Work, from, to time.Time) bool {
	for _, who := range w.consumers() {
		if len(l.Disturbed(who, from, to)) > 0 {
			return true
		}
	}
	return len(l.Disturbed(brokerName, from, to, "stop", "crash", "disk")) > 0
}

func checkRepeats(l *Life, promise string) {
	l.eachMessage(func(w Work, d design, _ built, m *Message) {
		if d.Rewinds {
			l.checkRepeated(w, m, promise)
			return
		}
		doubled := m.copies() > 1 // each publish may have stored an original
		for i, r := range m.Runs {
			for _, before := range m.Runs[:i] {
				if before.Attempt != r.Attempt {
					continue
				}
				first, second := inOrder(before, r)
				if why := l.repeated(d, m, first, second, doubled); why != "" {
					l.Broken(promise, "%s: attempt %d was repeated: %s: %s", w.Name, r.Attempt, why, m.History())
					return
				}
			}
		}
		if m.Parked > 1 && !doubled && !l.mayHaveTwoCopies(m) && !l.reappeared(m) && !l.parkedUnseen(w, m) {
			l.Broken(promise, "%s: parked %d times without a fault: %s", w.Name, m.Parked, m.History())
		}
	})
}

// inOrder returns two runs in the order of their deliveries, which normally is the order of the records. After a cut,
// however, a client may record its buffered deliveries in any order, at the same virtual time.
func inOrder(noted, later *Run) (first, second *Run) {
	if noted.Began.Equal(later.Began) && noted.Redelivered && !later.Redelivered {
		return later, noted
	}
	return noted, later
}

// parkedUnseen reports whether a worker may have parked two copies of a message without calling the handler. A worker
// parks a message on delivery if the message has reached the maximum number of attempts or crashes. A disturbance of a
// consumer or of the broker at that time can leave two copies.
func (l *Life) parkedUnseen(w Work, m *Message) bool {
	since := m.Sendings[0].Began
	for _, r := range m.Runs {
		if r.How == reprise.EventParked {
			return false
		}
		since = r.Began
	}
	return l.queueDisturbed(w, since)
}

// reappeared reports whether a message may have returned to the failed queue after an operator took it. A crash of
// the broker can undo the most recent acknowledgements.
func (l *Life) reappeared(m *Message) bool {
	return slices.ContainsFunc(m.Found, func(t time.Time) bool {
		return len(l.Disturbed(brokerName, t.Add(-time.Second), t.Add(l.grace()), "crash", "stop", "disk")) > 0
	})
}

// mayHaveTwoCopies reports whether an attempt may have left two copies. A worker requeues a message if the confirm of its
// copy is overdue, although the broker may still store the copy.
func (l *Life) mayHaveTwoCopies(m *Message) bool {
	for _, r := range m.Runs {
		if l.runDisturbed(r) || r.How == reprise.EventRequeued && !r.Cut {
			return true
		}
	}
	return false
}

// heldTooLong reports whether another program processed a delivery after the acknowledgement timeout. The broker had
// requeued the message, but the delivery was still in the client's buffer.
func (l *Life) heldTooLong(r *Run) bool {
	return r.process == nil && len(l.Disturbed(r.Who, r.Began.Add(-time.Hour), r.Began, "timeout")) > 0
}

// repeated returns the reason why the second run of an attempt breaks the promise, or "" if the repetition is permitted.
func (l *Life) repeated(d design, m *Message, before, r *Run, doubled bool) string {
	if doubled || l.heldTooLong(r) {
		return ""
	}
	again := before.How == reprise.EventRequeued || before.Cut || l.runDisturbed(before)
	if again && r.Redelivered {
		return ""
	}
	if d.Copies { // an earlier attempt may have left two copies
		for _, e := range m.Runs {
			// A worker requeues a message if the confirm of its copy is overdue, although the broker may still store the
			// copy.
			earlier := e.Attempt < r.Attempt || e.Attempt == r.Attempt && d.Name == leasesName // a lease is a copy, too
			if earlier && e.Began.Before(r.Began) && (l.runDisturbed(e) || e.How == reprise.EventRequeued && !e.Cut) {
				return ""
			}
		}
	}
	if again {
		return "flag redelivered is not set"
	}
	return "no fault occurred"
}

func checkEarly(l *Life, promise string) {
	l.eachMessage(func(w Work, d design, b built, m *Message) {
		for i, r := range m.Runs {
			if !m.Due.IsZero() && r.Began.Before(m.Due) {
				l.Broken(promise, "%s: scheduled for %v: %s", w.Name, m.Due.Sub(l.Began), m.History())
				return
			}
			// If there are two originals, a consumer may have received the other original and failed before its handler
			// began.
			if r.Attempt == 1 || d.Counts && m.copies() > 1 && l.queueDisturbed(w, m.Sendings[0].Began) {
				continue
			}
			var due time.Time // the earliest time that any sequence of copies permits
			for _, before := range m.Runs[:i] {
				if before.Attempt >= r.Attempt || before.Ended.IsZero() {
					continue
				}
				at := before.Ended
				// The broker may have redelivered the message while the handler was still running. Package idempotent counts
				// such a redelivery as an attempt.
				again := (d.Counts || d.Once) && l.runDisturbed(before)
				if again {
					at = before.Began
				}
				if before.Attempt == r.Attempt-1 && !before.Cut && !again {
					at = at.Add(b.low(before.Attempt, before.Asked))
				} else if !d.Counts && !d.Once {
					continue
				}
				if due.IsZero() || at.Before(due) {
					due = at
				}
			}
			// The delay starts when the previous attempt ends. The broker measures time in milliseconds.
			if r.Began.Before(due.Add(-time.Millisecond)) {
				l.Broken(promise, "%s: attempt %d was due at %v: %s", w.Name, r.Attempt, due.Sub(l.Began), m.History())
				return
			}
		}
	})
}

func checkAttempts(l *Life, promise string) {
	l.eachMessage(func(w Work, d design, _ built, m *Message) {
		seen := make(map[int]bool)
		for _, r := range m.Runs {
			what := ""
			switch {
			case r.Attempt > w.Attempts && !w.endless() && !m.rejected():
				what = fmt.Sprintf("attempt %d of %d", r.Attempt, w.Attempts)
			case r.Attempt > 1 && !seen[r.Attempt-1] && !d.Counts && !d.Once:
				what = fmt.Sprintf("attempt %d without the previous attempt", r.Attempt)
			}
			if what != "" {
				l.Broken(promise, "%s: %s: %s", w.Name, what, m.History())
				return
			}
			seen[r.Attempt] = true
		}
	})
}

func checkRedelivered(l *Life, promise string) {
	l.eachMessage(func(w Work, d design, _ built, m *Message) {
		// A worker whose attempts all have leases returns the messages that wait, so that another worker receives them.
		if len(m.Runs) == 0 || !m.Runs[0].Redelivered || m.Runs[0].Attempt > 1 || w.Design == leasesName {
			return
		}
		// A worker reports a lost subscription only after it has subscribed again. Another consumer may receive the requeued
		// messages before this report.
		from, to := m.Sendings[0].Began, m.Runs[0].Began.Add(2*time.Second)
		for _, who := range append(w.consumers(), rejecterName) {
			if len(l.Disturbed(who, from, to)) > 0 {
				return
			}
		}
		if len(l.Disturbed(brokerName, from, to)) == 0 {
			l.Broken(promise, "%s: %s", w.Name, m.History())
		}
	})
}

func checkAssigned(l *Life, promise string) {
	l.eachMessage(func(w Work, d design, _ built, m *Message) {
		if m.MessageID != "" || !d.Copies || w.Foreign > 0 || m.copies() > 1 || l.mayHaveTwoCopies(m) {
			return
		}
		id := ""
		for _, r := range m.Runs {
			if r.Attempt == 1 {
				continue
			}
			if r.MessageID == "" || id != "" && r.MessageID != id {
				l.Broken(promise, "%s: ID changed to %q from %q: %s", w.Name, r.MessageID, id, m.History())
				return
			}
			id = r.MessageID
		}
	})
}
