package ledger

import "time"

// sample is what was found, and how long it was found again without a change.
type sample struct {
	at, until time.Time
	times     int // that it was found
	terms
}

// still reports whether nothing moved when it was taken. A broker's figures are of
// different moments, so a message on its way can be in two of them or in none. A sample
// that was found unchanged three times is exact. Twice is not enough: a loss and two figures
// of different age can look the same once more.
func (x *sample) still() bool { return x.times >= 3 }

// oldest is how old the figures of a broker can be: RabbitMQ's management plugin renews them every 5 s, one after the other.
const oldest = 10 * time.Second

// empty reports whether all queues of the account were certainly empty when it was taken.
func (x *sample) empty() bool {
	return x.still() && x.terms[ready]+x.terms[unacked]+x.terms[waiting]+x.terms[inParking] == 0
}

// slack is by how much the difference of a sample can be wrong; false: that is not
// known, since it is the last one, and something has just moved.
func slack(samples []sample, i int) (int64, bool) {
	if samples[i].still() {
		return 0, true
	}
	if i == len(samples)-1 {
		return 0, false
	}
	before := &samples[max(0, i-1)].terms
	return motion(before, &samples[i].terms, &samples[i+1].terms), true
}

// opening is where an account begins.
type opening struct {
	terms
	slack int64
}

// step is a change of the difference that is more than slack.
type step struct {
	before int   // the last sample that shows that it was not there; -1: none does
	after  int   // the first that shows that it was
	n      int64 // messages that are missing; negative: too many
}

// steps returns how the difference came to be what it is.
func steps(from opening, samples []sample) []step {
	var found []step
	level := int64(0)
	for i := range samples {
		s, known := slack(samples, i)
		if !known {
			continue
		}
		s += from.slack
		n := samples[i].missing(&from.terms) - level
		switch {
		case n > s:
			n -= s
		case n < -s:
			n += s
		default:
			continue
		}
		level += n
		if level == 0 {
			found = nil // all of them have been found again
			continue
		}
		next := step{before: lastWithout(from, samples[:i], level), after: i, n: n}
		for len(found) > 0 {
			// What is seen more and more clearly is one difference, and so is what comes and goes.
			last := found[len(found)-1]
			if last.after <= next.before && (last.n > 0) == (next.n > 0) {
				break
			}
			next.before, next.n = min(last.before, next.before), last.n+next.n
			if (last.n > 0) == (next.n > 0) {
				next.after = last.after
			}
			found = found[:len(found)-1]
		}
		if next.n != 0 {
			found = append(found, next)
		}
	}
	return found
}

// lastWithout is the last sample that cannot have had a difference; -1: none.
func lastWithout(from opening, samples []sample, level int64) int {
	for i := len(samples) - 1; i >= 0; i-- {
		if s, known := slack(samples, i); known && abs(samples[i].missing(&from.terms)-level) > s+from.slack {
			return i
		}
	}
	return -1
}
