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

// Remaining returns how long the rest of a replay will take, or 0 if that is not known: by its Rate and Ramp, and by the speed so
// far if that is slower.
func (r *Replay) Remaining(now time.Time) time.Duration {
	left, took := float64(r.Left()), now.Sub(r.Begun)
	if !r.Ended.IsZero() || r.Sent == 0 || left == 0 || took <= 0 || r.Plan.Canary > 0 && r.Sent == 1 {
		return 0
	}
	soFar := left / (float64(r.Sent) / took.Seconds())
	switch {
	case !r.Plan.Ramp && r.Plan.Rate == 0:
		return seconds(soFar)
	case !r.Plan.Ramp:
		return seconds(max(soFar, left/r.Plan.Rate))
	}
	p, at := newPace(r.Plan, 1, r.Begun), now
	for left > 0 {
		step := rampStep - at.Sub(r.Begun)%rampStep
		rate := p.at(at)
		if rate == 0 || rate == r.Plan.Rate {
			break
		}
		if rate*step.Seconds() >= left {
			return at.Add(seconds(left / rate)).Sub(now)
		}
		left -= rate * step.Seconds()
		at = at.Add(step)
	}
	if rate := p.at(at); rate > 0 {
		at = at.Add(seconds(left / rate))
	}
	return at.Sub(now)
}

func seconds(n float64) time.Duration {
	return time.Duration(min(n, math.MaxInt64/2/float64(time.Second)) * float64(time.Second))
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
