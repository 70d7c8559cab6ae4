package reprise

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/backoff"
)

// Rule says what a Policy does about some errors. A field left zero is the
// Policy's.
//
// A Rule judges the attempt that just failed, by its error; the attempts before
// count, whatever they failed with. It does not overrule the handler: Park parks,
// and RetryAfter names the delay, though not how often and for how long.
type Rule struct {
	// Match reports whether the Rule is for an error, which is never nil: Is and
	// As make such functions. It is called from many goroutines at once.
	// Required.
	Match func(error) bool

	MaxAttempts int             // as the Policy's: 1 parks such an error at once, while others are retried
	GiveUpAfter time.Duration   // as the Policy's
	Backoff     backoff.Backoff // as the Policy's
}

// Is returns a Match for errors that are target, or wrap it: errors.Is. For a nil
// target it returns nil, which Policy.Validate refuses: the error of a failed attempt
// is never nil.
func Is(target error) func(error) bool {
	if target == nil {
		return nil
	}
	return func(err error) bool { return errors.Is(err, target) }
}

// As returns a Match for errors of type E, or that wrap one: errors.As. The type
// is the one that was returned, often a pointer: As[*net.OpError]().
func As[E error]() func(error) bool {
	return func(err error) bool {
		_, ok := errors.AsType[E](err)
		return ok
	}
}

func (r Rule) validate(name string) error {
	var missing error
	if r.Match == nil {
		missing = fmt.Errorf("reprise: %s.Match is nil: use reprise.Is(ErrSomething), reprise.As[*SomeError]() or a function of your own", name)
	}
	bad := backoff.Validate(r.Backoff)
	if bad != nil {
		bad = fmt.Errorf("reprise: %s.Backoff: %w", name, bad)
	}
	return errors.Join(missing,
		validateLimits(name, r.MaxAttempts, r.GiveUpAfter, "1 to park at once, more for retries, or 0 for the Policy's", "the Policy's"), bad)
}

// apply returns p as it is for an error, and in brackets which Rule made it so.
func (p Policy) apply(err error) (Policy, string) {
	for i, r := range p.Rules {
		if r.Match == nil || !r.Match(err) {
			continue
		}
		p.MaxAttempts = cmp.Or(r.MaxAttempts, p.MaxAttempts)
		p.GiveUpAfter = cmp.Or(r.GiveUpAfter, p.GiveUpAfter)
		if r.Backoff != nil {
			p.Backoff = r.Backoff
		}
		return p, fmt.Sprintf(" (Rules[%d])", i)
	}
	return p, ""
}
