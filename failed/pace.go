package failed

import (
	"math"
	"time"
)

// rampStep is how long each step of a ramp lasts.
const rampStep = 10 * time.Second

// rampEnd is the rate after which a ramp without a Rate has no limit any more.
const rampEnd = 10_000

// pace says when the next messages of a replay may be sent, and how many together:
// what is due in a tenth of a second. What was missed, since the broker or the store
// took its time, is not caught up with.
type pace struct {
	rate  float64 // per second; 0: no limit
	ramp  bool
	most  int // together
	began time.Time
	due   time.Time // when the next may be sent
}

func newPace(p Plan, most int, now time.Time) *pace {
	return &pace{rate: p.Rate, ramp: p.Ramp, most: most, began: now, due: now}
}

// at is the rate at a time: 1, 2, 5, 10, 20, 50 … while it ramps up. 0: no limit.
func (p *pace) at(now time.Time) float64 {
	if !p.ramp {
		return p.rate
	}
	step := int(now.Sub(p.began) / rampStep)
	rate := [...]float64{1, 2, 5}[step%3] * math.Pow10(step/3)
	switch {
	case p.rate > 0:
		return min(rate, p.rate)
	case rate > rampEnd:
		return 0
	}
	return rate
}

// size is how many messages may be sent together.
func (p *pace) size(now time.Time) int {
	rate := p.at(now)
	if rate == 0 {
		return p.most
	}
	return int(min(max(1, rate/10), float64(p.most)))
}

// wait is how long to wait before that.
func (p *pace) wait(now time.Time) time.Duration { return max(0, p.due.Sub(now)) }

// send notes that n messages are sent now.
func (p *pace) send(n int, now time.Time) {
	if rate := p.at(now); rate > 0 {
		wait := math.Ceil(float64(n) / rate * float64(time.Second)) // fractions of nanoseconds add up
		p.due = now.Add(time.Duration(min(wait, math.MaxInt64/2)))  // more would be a time before now
	}
}
