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

// Remaining returns how long the rest of a replay will take, or 0 if that is not known. The rate is the current one, in messages
// per second. A ramp raises it, unless it is far below the ramp by now: then the broker or the archive is slower.
func (r *Replay) Remaining(rate float64) time.Duration {
	left, sent := float64(r.Left()), float64(r.Sent)
	if r.Plan.Canary > 0 {
		sent--
	}
	if !r.Ended.IsZero() || sent <= 0 || left == 0 || rate <= 0 {
		return 0
	}
	if !r.Plan.Ramp {
		return seconds(left / rate)
	}
	// The number of messages that were sent says how far the ramp is: the replay may have waited for its canary, or have
	// begun again in another process.
	var start time.Time
	p, at := newPace(r.Plan, 1, start), start
	planned := p.at(at)
	for ; planned > 0 && planned != r.Plan.Rate; planned = p.at(at) {
		if n := planned * rampStep.Seconds(); sent >= n {
			sent, at = sent-n, at.Add(rampStep)
			continue
		}
		at = at.Add(seconds(sent / planned))
		break
	}
	if planned == 0 || planned == r.Plan.Rate || rate < planned/4 {
		return seconds(left / rate)
	}
	begin := at
	for left > 0 {
		step := rampStep - at.Sub(start)%rampStep
		planned := p.at(at)
		if planned == 0 {
			break // at once, as far as anybody knows
		}
		if planned == r.Plan.Rate || planned*step.Seconds() >= left {
			at = at.Add(seconds(left / planned))
			break
		}
		left -= planned * step.Seconds()
		at = at.Add(step)
	}
	return at.Sub(begin)
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
