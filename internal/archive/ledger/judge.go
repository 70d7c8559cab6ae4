package ledger

import (
	"math"
	"time"
)

// sample contains the figures of an account, and the period during which they did not change.
type sample struct {
	at, until time.Time
	times     int // number of consecutive samples with these figures
	terms
}

// still reports whether the account had no activity at the time of the sample. The figures of a broker are from different
// times, so a message that is moving may be in two figures or in none. Figures that are equal in three consecutive
// samples are exact. Two samples are not enough, because outdated figures can be equal once.
func (x *sample) still() bool { return x.times >= 3 }

// oldest is the maximum age of the broker's figures. RabbitMQ's management plugin updates each figure every 5 s, but
// not all at once.
const oldest = 10 * time.Second

// empty reports whether all queues of the account were certainly empty at the time of the sample.
func (x *sample) empty() bool {
	return x.still() && x.terms[ready]+x.terms[unacked]+x.terms[waiting]+x.terms[inParking] == 0
}

// slack returns the maximum error of the discrepancy of samples[i]. It returns false if the error is unknown, because
// the sample is the last one and its figures may not be exact yet (see still).
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

// opening contains the figures at the start of an account.
type opening struct {
	terms
	slack int64
}

// silent returns the number of messages that consumers without a book have certainly acknowledged between two samples, of
// which the later one is the newest possible sample. The counts of the broker and of the workers may be older than their
// sample, but not older than the sample before. Because they only increase, the counts at the time of a sample are between
// the sample and the next sample.
func silent(samples []sample) int64 {
	n, most := int64(0), int64(math.MaxInt64)
	for i := range samples {
		x, next := &samples[i], &samples[i]
		if !x.still() {
			if i == len(samples)-1 {
				break
			}
			next = &samples[i+1]
		}
		n = x.terms[taken] - next.terms.accounted() - most
		most = min(most, next.terms[taken]-x.terms.accounted())
	}
	return max(n, 0)
}

// step is a change in the discrepancy by more than the slack.
type step struct {
	before int   // index of the last sample that cannot have the change; -1: none
	after  int   // index of the first sample that shows the change
	n      int64 // number of missing messages; negative: too many
}

// steps returns the changes whose sum is the current discrepancy.
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
			found = nil // the discrepancy has disappeared
			continue
		}
		next := step{before: lastWithout(from, samples[:i], level), after: i, n: n}
		for len(found) > 0 {
			// Merge the changes of one discrepancy, which can grow and shrink.
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

// lastWithout returns the index of the last sample that cannot have the discrepancy; -1: none.
func lastWithout(from opening, samples []sample, level int64) int {
	for i := len(samples) - 1; i >= 0; i-- {
		if s, known := slack(samples, i); known && abs(samples[i].missing(&from.terms)-level) > s+from.slack {
			return i
		}
	}
	return -1
}
