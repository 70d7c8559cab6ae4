package replay

import (
	"math"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// rampStep is the duration of each step of a ramp.
const rampStep = 10 * time.Second

// rampEnd is the rate above which a ramp without Plan.Rate becomes unlimited.
const rampEnd = 10_000

// pace calculates the time and the size of the next batch of a replay. A batch contains the messages for a tenth of a
// second, but at least one message. If the broker or the archive delays a batch, pace does not increase the rate to
// compensate.
type pace struct {
	rate  float64 // messages per second; 0: unlimited
	ramp  bool
	most  int // maximum size of a batch
	began time.Time
	due   time.Time // earliest time of the next batch
}

func newPace(p failed.Plan, most int, now time.Time) *pace {
	return &pace{rate: p.Rate, ramp: p.Ramp, most: most, began: now, due: now}
}

// at returns the rate at the time now: 1, 2, 5, 10, 20, 50 … during a ramp. 0 means unlimited.
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

// Remaining estimates the time until the replay has sent all messages. It returns 0 if the replay ended or the time is
// not known. rate is the current rate in messages per second. The estimate takes the ramp into account, unless rate is
// far below the ramp because the broker or the archive is slow.
func Remaining(r *failed.Replay, rate float64) time.Duration {
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
	// The number of sent messages determines the step of the ramp, because the replay may have waited for its canary or
	// may have restarted in another process.
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
			break // the estimate ignores messages that are sent at an unlimited rate
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

// size returns the maximum size of the next batch.
func (p *pace) size(now time.Time) int {
	rate := p.at(now)
	if rate == 0 {
		return p.most
	}
	return int(min(max(1, rate/10), float64(p.most)))
}

// wait returns the time until the next batch.
func (p *pace) wait(now time.Time) time.Duration { return max(0, p.due.Sub(now)) }

// send records that n messages are sent now.
func (p *pace) send(n int, now time.Time) {
	if rate := p.at(now); rate > 0 {
		wait := math.Ceil(float64(n) / rate * float64(time.Second)) // rounded up, because fractions of a nanosecond add up
		p.due = now.Add(time.Duration(min(wait, math.MaxInt64/2)))  // a larger value would overflow
	}
}
