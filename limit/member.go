package limit

import (
	"math"
	"time"
)

// member is the part of a limit that one process uses. Its methods are not safe for concurrent use. All times are since its
// start.
type member struct {
	whole bool
	limit float64 // permits per second, or permits at the same time

	share float64
	until time.Duration // end of the share
	sent  time.Duration // of the latest request; negative: none

	// Of a rate: the permits that are available now. A pause of the process does not accumulate more than burst of them.
	tokens float64
	filled time.Duration // time of the latest change of tokens

	running int // permits in use, if whole
	waiting int // callers that wait for a permit
	recent  recent
}

// burst is the number of permits that a share can accumulate: one, or those of 10 ms, because timers are not exact.
func (m *member) burst() float64 { return max(1, m.share/100) }

// current returns the share at a time.
func (m *member) current(now time.Duration) float64 {
	if now >= m.until {
		return 0
	}
	return m.share
}

// fill adds the permits that have become available.
func (m *member) fill(now time.Duration) {
	if valid := min(now, m.until); valid > m.filled {
		m.tokens = min(m.burst(), m.tokens+m.share*(valid-m.filled).Seconds())
	}
	m.filled = now
}

// take takes a permit, or returns the time until one is available, if the share does not change. A negative time means that
// none will be.
func (m *member) take(now time.Duration) (taken bool, wait time.Duration) {
	share := m.current(now)
	if m.whole {
		if float64(m.running) < share {
			m.running++
			return true, 0
		}
		return false, -1
	}
	m.fill(now)
	if m.tokens >= 1 {
		m.tokens--
		m.recent.add(now)
		return true, 0
	}
	if share == 0 {
		return false, -1
	}
	return false, time.Duration(math.Ceil((1 - m.tokens) / share * 1e9))
}

// request returns the next request.
func (m *member) request(now time.Duration, id string) request {
	m.sent = now
	r := request{Member: id, Sent: now, Held: m.current(now)}
	switch {
	case m.whole:
		r.Held = max(r.Held, float64(m.running))
		r.Demand = float64(m.running + m.waiting)
	case m.waiting > 0:
		r.Demand = m.limit
	default:
		r.Demand = m.recent.rate(now)
	}
	return r
}

// receive applies an answer, and reports whether the share has become smaller, so that the leader should know that the member
// uses less.
func (m *member) receive(now time.Duration, a answer) (less bool) {
	if a.Sent != m.sent || now >= a.Sent+lease {
		return false
	}
	before := m.current(now)
	if !m.whole {
		m.fill(now)
	}
	m.share, m.until = a.Share, a.Sent+lease
	if !m.whole {
		m.tokens = min(m.tokens, m.burst())
	}
	return m.share < before
}

// blocked keeps the share while nobody can send requests.
func (m *member) blocked(now time.Duration) {
	if m.current(now) > 0 {
		m.until = now + lease
	}
}

// recent counts the permits of the last 5 beats.
type recent struct {
	counts [5]int
	newest int64 // number of the beat of counts[newest % 5]
}

func (r *recent) add(now time.Duration) {
	r.move(now)
	r.counts[r.newest%int64(len(r.counts))]++
}

// move empties the counts of beats that have begun.
func (r *recent) move(now time.Duration) {
	for at := int64(now / beat); r.newest < at; {
		r.newest = max(r.newest+1, at-int64(len(r.counts))+1)
		r.counts[r.newest%int64(len(r.counts))] = 0
	}
}

// rate returns the permits per second in the busiest of the beats.
func (r *recent) rate(now time.Duration) float64 {
	r.move(now)
	most := 0
	for _, n := range r.counts {
		most = max(most, n)
	}
	return float64(most) / beat.Seconds()
}
