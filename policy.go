package reprise

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/brief"
)

// DefaultMaxAttempts is the default of Policy.MaxAttempts. With the default
// Backoff, the last attempt starts 24 to 26 hours after the first.
const DefaultMaxAttempts = 19

// defaultBackoff retries for a day with few different delays, so that a work
// queue needs few wait queues. Each delay with its jitter fits into one bucket of
// topology.Buckets, which makes seven wait queues in all.
var defaultBackoff = backoff.Jitter{
	Backoff: backoff.List{
		3 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
	},
	Spread: 0.05,
}

// Policy decides how often a message is tried, for how long, and how long it
// waits in between. The zero value is the default policy, which retries a message
// for about 24 hours before it is parked. `reprise schedule` shows when the
// attempts of a policy run.
//
// Marks that count the remaining retries themselves (topology.CountDown) take
// the place of MaxAttempts, and routes that know one delay only
// (topology.WaitQueue) that of Backoff.
type Policy struct {
	// MaxAttempts is how many times the handler runs before the message is
	// parked, the first time included: 1 means no retry. Default 19.
	MaxAttempts int

	// GiveUpAfter bounds the time from the first failure to the beginning of the
	// last attempt. A retry that would begin later is not made, and the message
	// is parked at once. The delay of RetryAfter obeys it, too. What a wait queue
	// adds to a delay is not counted. NewWorker refuses it with marks that do not
	// record the first failure (topology.CountDown and Deliveries). Default: no
	// limit.
	GiveUpAfter time.Duration

	// Backoff is the delay after each failed attempt. Default: 3 s, 30 s, 2 min,
	// 10 min, 30 min, 1 h, then always 2 h, each shortened at random by up to 5 %.
	// With topology.Buckets, these delays take seven wait queues per work queue.
	Backoff backoff.Backoff

	// Rules are for errors that deserve other numbers. The first that matches
	// the error of an attempt holds for what follows that attempt.
	Rules []Rule
}

// WithDefaults returns p with MaxAttempts and Backoff replaced by their defaults
// where they are zero.
func (p Policy) WithDefaults() Policy {
	p.MaxAttempts = cmp.Or(p.MaxAttempts, DefaultMaxAttempts)
	if p.Backoff == nil {
		p.Backoff = defaultBackoff
	}
	return p
}

// atMost returns the policy of a message that brings a number of attempts of its
// own. Rules can still allow less.
func (p Policy) atMost(attempts int) Policy {
	p.MaxAttempts = max(1, attempts)
	p.Rules = slices.Clone(p.Rules)
	for i := range p.Rules {
		p.Rules[i].MaxAttempts = min(p.Rules[i].MaxAttempts, p.MaxAttempts)
	}
	return p
}

// most is how many attempts there can be, whatever the errors.
func (p Policy) most() int {
	n := p.WithDefaults().MaxAttempts
	for _, r := range p.Rules {
		n = max(n, r.MaxAttempts)
	}
	return n
}

// limitsTime reports whether there is a time limit, for any error.
func (p Policy) limitsTime() bool {
	return p.GiveUpAfter > 0 || slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.GiveUpAfter > 0 })
}

// Validate reports numbers that make no policy and what to write instead.
func (p Policy) Validate() error {
	errs := []error{
		validateLimits("Policy", p.MaxAttempts, p.GiveUpAfter, fmt.Sprintf("1 for no retry, more for retries, or 0 for the default of %d", DefaultMaxAttempts), "no limit"),
		backoff.Validate(p.Backoff),
	}
	for i, r := range p.Rules {
		errs = append(errs, r.validate(fmt.Sprintf("Policy.Rules[%d]", i)))
	}
	return errors.Join(errs...)
}

func validateLimits(owner string, attempts int, giveUpAfter time.Duration, instead, unless string) error {
	var errs []error
	if attempts < 0 || attempts > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("reprise: %s.MaxAttempts %d: use %s", owner, attempts, instead))
	}
	if giveUpAfter < 0 {
		errs = append(errs, fmt.Errorf("reprise: %s.GiveUpAfter %s is negative: use 0 for %s", owner, giveUpAfter, unless))
	}
	return errors.Join(errs...)
}

// Decision is what becomes of a message after a failed attempt.
type Decision struct {
	Retry  bool          // it comes back; else it is parked
	Delay  time.Duration // when it comes back, from now; never negative
	Pause  time.Duration // with Retry: how long the worker consumes nothing, see PauseFor
	Reason string        // why it is parked, such as "10 attempts made"
}

// Decide says what becomes of a message after an attempt that failed with err.
// The attempt is counted from 1, and since is how long ago the first of them
// failed: 0 where this is the first. A smaller attempt counts as 1, a negative since
// as 0.
//
// It is what a worker asks, so RetryAfter, PauseFor and Park in err mean what
// they mean there; a nil err is no failure, and the Decision is zero. Nothing is
// remembered, and nothing changed: the answer depends on the arguments alone,
// and on what a Backoff with jitter draws. A Match that panics panics here.
func (p Policy) Decide(err error, attempt int, since time.Duration) Decision {
	return p.decide(classify(err), err, attempt, since, func(d time.Duration) time.Duration { return d })
}

// decide is Decide for an error that was classified before. Of the delay that is
// wanted, wait says how long a message will in fact wait.
func (p Policy) decide(v verdict, err error, attempt int, since time.Duration, wait func(time.Duration) time.Duration) Decision {
	switch v.outcome {
	case succeeded:
		return Decision{}
	case hopeless:
		return Decision{Reason: "parked by the handler"}
	}
	p, rule, park := p.WithDefaults().apply(err)
	if park {
		return Decision{Reason: "parked by a rule" + rule}
	}
	attempt, since = max(1, attempt), max(0, since)
	if attempt >= p.MaxAttempts {
		return Decision{Reason: attemptsMade(attempt, p.MaxAttempts) + rule}
	}
	delay := v.delay
	if v.outcome != later {
		delay = max(0, p.Backoff.Delay(attempt))
	}
	delay = wait(delay)
	if p.GiveUpAfter > 0 && delay > p.GiveUpAfter-since {
		return Decision{Reason: tooLate(delay, since, p.GiveUpAfter) + rule}
	}
	return Decision{Retry: true, Delay: delay, Pause: v.pause}
}

func attemptsMade(made, limit int) string {
	switch {
	case made > limit:
		return fmt.Sprintf("%d attempts made, the limit is %d", made, limit)
	case made == 1:
		return "1 attempt made"
	}
	return fmt.Sprintf("%d attempts made", made)
}

func tooLate(delay, since, limit time.Duration) string {
	begin := delay + min(since, math.MaxInt64-delay)
	// Rounded up, so that it never looks like less than the limit.
	if rest := begin % time.Millisecond; begin > time.Second && rest > 0 && begin < math.MaxInt64-time.Second {
		begin += time.Millisecond - rest
	}
	if rest := begin % time.Second; begin > time.Minute && rest > 0 && begin < math.MaxInt64-time.Second {
		begin += time.Second - rest
	}
	if delay > time.Minute {
		delay = delay.Round(time.Second)
	}
	return fmt.Sprintf("a retry in %s would begin %s after the first failure, the limit is %s", brief.Duration(delay), brief.Duration(begin), brief.Duration(limit))
}

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

	// Park parks the message at once, without further attempts. The other fields are 0.
	Park bool

	MaxAttempts int             // as the Policy's
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
	if r.Park && (r.MaxAttempts != 0 || r.GiveUpAfter != 0 || r.Backoff != nil) {
		missing = errors.Join(missing, fmt.Errorf("reprise: %s: MaxAttempts, GiveUpAfter and Backoff must be 0 with Park", name))
	}
	return errors.Join(missing,
		validateLimits(name, r.MaxAttempts, r.GiveUpAfter, "1 to park at once, more for retries, or 0 for the Policy's", "the Policy's"), bad)
}

// apply returns p as it is for an error, in brackets the Rule that made it so, and
// whether that Rule parks the message.
func (p Policy) apply(err error) (_ Policy, rule string, park bool) {
	for i, r := range p.Rules {
		if r.Match == nil || !r.Match(err) {
			continue
		}
		p.MaxAttempts = cmp.Or(r.MaxAttempts, p.MaxAttempts)
		p.GiveUpAfter = cmp.Or(r.GiveUpAfter, p.GiveUpAfter)
		if r.Backoff != nil {
			p.Backoff = r.Backoff
		}
		return p, fmt.Sprintf(" (Rules[%d])", i), r.Park
	}
	return p, "", false
}
