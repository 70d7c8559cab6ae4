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

// DefaultMaxAttempts is the default of Policy.MaxAttempts. With the default Backoff, the last attempt starts 24 to 26 hours
// after the first.
const DefaultMaxAttempts = 19

// defaultBackoff retries for a day with few different delays, so that a work queue needs few wait queues. Each delay,
// including its jitter, fits into one bucket of topology.Buckets, so there are seven wait queues.
var defaultBackoff = backoff.Jitter{
	Backoff: backoff.List{
		3 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
	},
	Spread: 0.05,
}

// Policy decides the number of attempts, their total duration and the delays between them. The zero value is the default
// policy, which retries a message for about 24 hours before it is parked. `reprise policy` prints the times of the
// attempts of a policy.
//
// Marks that count the remaining retries (topology.CountDown) replace MaxAttempts. Routes that determine the delay
// themselves, such as topology.WaitQueue, replace Backoff.
type Policy struct {
	// MaxAttempts is the maximum number of attempts, including the first, before the message is parked. 1 means no
	// retries. Default: 19.
	MaxAttempts int

	// GiveUpAfter limits the time from the first failure to the start of the last attempt. If a retry would start later,
	// the message is parked immediately. The limit also applies to the delay of RetryAfter. The worker checks the planned
	// time of the retry, so it still handles a message that leaves its wait queue late. NewWorker refuses GiveUpAfter with
	// marks that do not record the first failure (topology.CountDown and Deliveries). Default: no limit.
	GiveUpAfter time.Duration

	// Backoff is the delay after each failed attempt. Default: 3 s, 30 s, 2 min, 10 min, 30 min, 1 h, then always 2 h,
	// each randomly reduced by up to 5%. With topology.Buckets, these delays require seven wait queues per work queue.
	Backoff backoff.Backoff

	// Rules override fields for certain errors. After an attempt, the first Rule that matches its error applies. Default:
	// none.
	Rules []Rule
}

// WithDefaults returns p with the defaults of MaxAttempts and Backoff, if they are zero.
func (p Policy) WithDefaults() Policy {
	p.MaxAttempts = cmp.Or(p.MaxAttempts, DefaultMaxAttempts)
	if p.Backoff == nil {
		p.Backoff = defaultBackoff
	}
	return p
}

// withMaxAttempts returns the policy for a message that specifies its maximum number of attempts. Rules can reduce this
// number further.
func (p Policy) withMaxAttempts(attempts int) Policy {
	p.MaxAttempts = max(1, attempts)
	p.Rules = slices.Clone(p.Rules)
	for i := range p.Rules {
		p.Rules[i].MaxAttempts = min(p.Rules[i].MaxAttempts, p.MaxAttempts)
	}
	return p
}

// maxAttempts returns the highest number of attempts that the policy permits for any error.
func (p Policy) maxAttempts() int {
	n := p.WithDefaults().MaxAttempts
	for _, r := range p.Rules {
		n = max(n, r.MaxAttempts)
	}
	return n
}

// limitsTime reports whether the policy or a rule has a time limit.
func (p Policy) limitsTime() bool {
	return p.GiveUpAfter > 0 || slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.GiveUpAfter > 0 })
}

// Validate reports invalid fields and suggests valid values.
func (p Policy) Validate() error {
	errs := []error{
		validateLimits("Policy", p.MaxAttempts, p.GiveUpAfter, fmt.Sprintf("0 means %d, 1 no retries", DefaultMaxAttempts), "no limit"),
		backoff.Validate(p.Backoff),
	}
	for i, r := range p.Rules {
		errs = append(errs, r.validate(fmt.Sprintf("Policy.Rules[%d]", i)))
	}
	return errors.Join(errs...)
}

func validateLimits(owner string, attempts int, giveUpAfter time.Duration, defaults, unless string) error {
	var errs []error
	if attempts < 0 || attempts > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("reprise: %s.MaxAttempts must be between 0 and %d: got %d (%s)", owner, math.MaxInt32, attempts, defaults))
	}
	if giveUpAfter < 0 {
		errs = append(errs, fmt.Errorf("reprise: %s.GiveUpAfter must not be negative: got %s (0 means %s)", owner, giveUpAfter, unless))
	}
	return errors.Join(errs...)
}

// Decision is the result of a Policy after a failed attempt.
type Decision struct {
	Retry  bool          // the message is retried; otherwise parked
	Delay  time.Duration // time until the retry; never negative
	Pause  time.Duration // duration of the worker's pause if Retry is set: see PauseFor
	Reason string        // reason for parking, such as "10 attempts made"

	Uncounted bool // the attempt does not count: see Snooze
}

// Decide returns the decision for a message after an attempt that failed with err. The first attempt has the number 1.
// The argument since is the time since the first failed attempt, or 0 if this is the first failed attempt. An attempt
// below 1 counts as 1, and a negative since as 0.
//
// Workers decide in the same way: RetryAfter, PauseFor and Park in err have their usual effect. If err is nil, the
// Decision is zero. Decide has no state and no side effects. Its result depends only on p, on the arguments and on the
// random numbers of a Backoff with jitter. It does not recover a panic of Match.
func (p Policy) Decide(err error, attempt int, since time.Duration) Decision {
	return p.decide(classify(err), err, attempt, since, func(d time.Duration) time.Duration { return d })
}

// decide implements Decide for an error that was already classified. wait returns the delay that the route provides for
// a requested delay.
func (p Policy) decide(v verdict, err error, attempt int, since time.Duration, wait func(time.Duration) time.Duration) Decision {
	switch v.outcome {
	case succeeded:
		return Decision{}
	case unretryable:
		return Decision{Reason: "parked by the handler"}
	}
	p, matched, rule := p.WithDefaults().apply(err)
	if matched.Park {
		return Decision{Reason: "parked by a rule" + rule}
	}
	uncounted := v.uncounted || matched.Uncounted
	attempt, since = max(1, attempt), max(0, since)
	if attempt >= p.MaxAttempts && !uncounted {
		return Decision{Reason: attemptsMade(attempt, p.MaxAttempts) + rule}
	}
	delay := v.delay
	if v.outcome != postponed {
		delay = max(0, p.Backoff.Delay(attempt))
	}
	delay = wait(delay)
	if p.GiveUpAfter > 0 && delay > p.GiveUpAfter-since && !uncounted {
		return Decision{Reason: tooLate(delay, since, p.GiveUpAfter) + rule}
	}
	return Decision{Retry: true, Delay: delay, Pause: v.pause, Uncounted: uncounted}
}

// counting returns p with rules whose attempts count.
func (p Policy) counting() Policy {
	p.Rules = slices.Clone(p.Rules)
	for i := range p.Rules {
		p.Rules[i].Uncounted = false
	}
	return p
}

func attemptsMade(made, limit int) string {
	switch {
	case made > limit:
		return fmt.Sprintf("%d attempts made; the limit is %d", made, limit)
	case made == 1:
		return "1 attempt made"
	}
	return fmt.Sprintf("%d attempts made", made)
}

func tooLate(delay, since, limit time.Duration) string {
	begin := delay + min(since, math.MaxInt64-delay)
	// rounded up, so that the result never appears to be below the limit
	if rest := begin % time.Millisecond; begin > time.Second && rest > 0 && begin < math.MaxInt64-time.Second {
		begin += time.Millisecond - rest
	}
	if rest := begin % time.Second; begin > time.Minute && rest > 0 && begin < math.MaxInt64-time.Second {
		begin += time.Second - rest
	}
	if delay > time.Minute {
		delay = delay.Round(time.Second)
	}
	return fmt.Sprintf("a retry in %s would begin %s after the first failure; the limit is %s", brief.Duration(delay), brief.Duration(begin), brief.Duration(limit))
}

// Rule overrides the fields of a Policy for certain errors. A zero field keeps the value of the Policy.
//
// A Rule applies after an attempt that failed with a matching error. All earlier attempts count, regardless of their
// errors, unless a Rule with Uncounted matched them. A Rule does not override the handler: Park parks the message, and RetryAfter sets the delay. The limits and
// the Park field of the Rule also apply to RetryAfter.
type Rule struct {
	// Match reports whether the Rule applies to an error, which is never nil. MatchIs and MatchAs return such functions. Match must
	// be safe for concurrent use. Required.
	Match func(error) bool

	// Park parks the message immediately, without further attempts. It cannot be combined with MaxAttempts, GiveUpAfter or
	// Backoff. Default: false.
	Park bool

	// Uncounted makes matching attempts not count, as Snooze does: a message that waits for a shop to open keeps all its
	// attempts for real errors. The GiveUpAfter of the Policy still measures the time since the first counted failure.
	// Uncounted cannot be combined with Park, MaxAttempts or GiveUpAfter. Default: false.
	Uncounted bool

	MaxAttempts int             // overrides Policy.MaxAttempts
	GiveUpAfter time.Duration   // overrides Policy.GiveUpAfter
	Backoff     backoff.Backoff // overrides Policy.Backoff
}

// MatchIs returns a Match for errors that match target according to errors.Is. If target is nil, it returns nil, which
// Policy.Validate refuses, because the error of a failed attempt is never nil.
func MatchIs(target error) func(error) bool {
	if target == nil {
		return nil
	}
	return func(err error) bool { return errors.Is(err, target) }
}

// MatchAs returns a Match for errors that match type E according to errors.As. E is the exact type of the error to match,
// often a pointer: MatchAs[*net.OpError]().
func MatchAs[E error]() func(error) bool {
	return func(err error) bool {
		_, ok := errors.AsType[E](err)
		return ok
	}
}

func (r Rule) validate(name string) error {
	var missing error
	if r.Match == nil {
		missing = fmt.Errorf("reprise: %s.Match must not be nil (use reprise.MatchIs(ErrSomething), reprise.MatchAs[*SomeError]() or another function)", name)
	}
	bad := backoff.Validate(r.Backoff)
	if bad != nil {
		bad = fmt.Errorf("reprise: %s.Backoff: %w", name, bad)
	}
	if r.Park && (r.MaxAttempts != 0 || r.GiveUpAfter != 0 || r.Backoff != nil) {
		missing = errors.Join(missing, fmt.Errorf("reprise: %s: MaxAttempts, GiveUpAfter and Backoff must be 0 with Park", name))
	}
	if r.Uncounted && (r.Park || r.MaxAttempts != 0 || r.GiveUpAfter != 0) {
		missing = errors.Join(missing, fmt.Errorf("reprise: %s: Park, MaxAttempts and GiveUpAfter must not be set with Uncounted", name))
	}
	return errors.Join(missing,
		validateLimits(name, r.MaxAttempts, r.GiveUpAfter, "0 means the MaxAttempts of the Policy, 1 no retries", "the GiveUpAfter of the Policy"), bad)
}

// apply returns p with the overrides for an error. It also returns the matching Rule, and its name in parentheses for
// Decision.Reason.
func (p Policy) apply(err error) (_ Policy, matched Rule, name string) {
	for i, r := range p.Rules {
		if r.Match == nil || !r.Match(err) {
			continue
		}
		p.MaxAttempts = cmp.Or(r.MaxAttempts, p.MaxAttempts)
		p.GiveUpAfter = cmp.Or(r.GiveUpAfter, p.GiveUpAfter)
		if r.Backoff != nil {
			p.Backoff = r.Backoff
		}
		return p, r, fmt.Sprintf(" (Rules[%d])", i)
	}
	return p, Rule{}, ""
}
