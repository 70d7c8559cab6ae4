package reprise

import (
	"fmt"
	"math"
	"time"

	"github.com/reprisemq/reprise/backoff"
)

// DefaultMaxAttempts is the number of attempts a Policy allows unless it says
// otherwise. With the default Backoff the last one starts 4 to 9 minutes after
// the first.
const DefaultMaxAttempts = 10

// Policy decides how often a message is tried, and how long it waits in
// between. The zero value is the default policy.
//
// Marks that count the remaining retries themselves (topology.CountDown) and
// routes that know one delay only (topology.WaitQueue) overrule it.
type Policy struct {
	// MaxAttempts is how many times the handler runs before the message is
	// parked, the first time included: 1 means no retry. Default 10.
	MaxAttempts int

	// Backoff is the delay after each failed attempt. Default: exponential
	// from 1 s, doubling, up to 1 h, the second half of each delay random.
	Backoff backoff.Backoff
}

func (p Policy) withDefaults() Policy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = DefaultMaxAttempts
	}
	if p.Backoff == nil {
		p.Backoff = backoff.Equal(backoff.Exponential{})
	}
	return p
}

// Validate reports numbers that make no policy and what to write instead.
func (p Policy) Validate() error {
	if p.MaxAttempts < 0 || p.MaxAttempts > math.MaxInt32 {
		return fmt.Errorf("reprise: Policy.MaxAttempts %d: use 1 for no retry, more for retries, or 0 for the default of %d", p.MaxAttempts, DefaultMaxAttempts)
	}
	return backoff.Validate(p.Backoff)
}

// delay is the policy's answer after a failed attempt.
func (p Policy) delay(attempt int) time.Duration { return max(0, p.Backoff.Delay(attempt)) }
