package cli

import (
	"math"
	"slices"
	"time"

	"github.com/reprisemq/reprise/topology"
)

// plan is when the attempts of a message run that always fails, and when it is
// parked. All times are from the beginning of the first attempt, supposing that
// attempts take none.
type plan struct {
	attempts []planned
	parked   planned // attempt is the earliest that may be the last one
	last     int     // and this the latest
}

// planned is an attempt.
type planned struct {
	attempt int
	after   window // the delay before it
	at      window
	perhaps bool // the message may have been parked before
}

// window is when something happens that depends on jitter.
type window struct{ low, high time.Duration }

func (w window) exact() bool { return w.low == w.high }

// plus adds times that may be longer than there are times.
func (w window) plus(o window) window {
	return window{w.low + min(o.low, math.MaxInt64-w.low), w.high + min(o.high, math.MaxInt64-w.high)}
}

// newPlan follows a message. The delay after each attempt is in a window; 0 for
// giveUpAfter is no limit.
//
// With jitter, some messages may be parked when others are tried again: an
// attempt is planned where one message comes to it, and what becomes of the rest
// widens the window in which messages are parked.
func newPlan(delay func(attempt int) window, maxAttempts int, giveUpAfter time.Duration) plan {
	if giveUpAfter == 0 {
		giveUpAfter = math.MaxInt64
	}
	var p plan
	row := planned{attempt: 1}
	for {
		shown := row
		shown.at.high = min(row.at.high, giveUpAfter)
		shown.perhaps = row.at.high > giveUpAfter
		p.attempts = append(p.attempts, shown)

		if row.attempt == maxAttempts {
			p.park(row.attempt, shown.at)
			return p
		}
		wait := delay(row.attempt)
		next := row.at.plus(wait)
		if next.high > giveUpAfter {
			// Messages that are so far that the longest delay is too long.
			p.park(row.attempt, window{max(row.at.low, giveUpAfter-wait.high), shown.at.high})
		}
		if next.low > giveUpAfter {
			return p
		}
		row = planned{attempt: row.attempt + 1, after: wait, at: next}
	}
}

// park notes that a message may be parked after an attempt.
func (p *plan) park(attempt int, at window) {
	if p.last == 0 {
		p.parked = planned{attempt: attempt, at: at}
	}
	p.last = attempt
	p.parked.at.low, p.parked.at.high = min(p.parked.at.low, at.low), max(p.parked.at.high, at.high)
}

// end is when all is over.
func (p plan) end() time.Duration { return p.parked.at.high }

// cut reports whether there are delays as long as there can be.
func (p plan) cut() bool {
	return slices.ContainsFunc(p.attempts, func(a planned) bool { return a.after.high == topology.MaxDelay })
}

// shown are the attempts that a person looks at: all, or if there are many the
// first and the last of them, with one that is zero in between.
func (p plan) shown() []planned {
	const head, tail = 15, 3
	if len(p.attempts) <= head+tail+2 {
		return p.attempts
	}
	rows := append([]planned(nil), p.attempts[:head]...)
	rows = append(rows, planned{})
	return append(rows, p.attempts[len(p.attempts)-tail:]...)
}
