package workertest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
)

var errBusy = errors.New("busy")

// failures contains errors that rules can distinguish.
var failures = []error{errScripted, errBusy, fmt.Errorf("read: %w", io.ErrUnexpectedEOF), &fs.PathError{Op: "open", Path: "x", Err: fs.ErrNotExist}}

func spans() *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.OneOf(rapid.Int64Range(0, int64(100*time.Hour)), rapid.Int64Range(0, math.MaxInt64)),
		func(n int64) time.Duration { return time.Duration(n) })
}

// growing draws a schedule with non-decreasing delays.
func growing() *rapid.Generator[backoff.Backoff] {
	return rapid.OneOf(
		rapid.Map(spans(), func(d time.Duration) backoff.Backoff { return backoff.Fixed(d) }),
		rapid.Map(spans(), func(d time.Duration) backoff.Backoff { return backoff.Linear{Step: d, Max: math.MaxInt64} }),
		rapid.Map(spans(), func(d time.Duration) backoff.Backoff { return backoff.Exponential{Initial: d, Max: math.MaxInt64} }),
	)
}

func schedules() *rapid.Generator[backoff.Backoff] {
	return rapid.OneOf(
		growing(),
		rapid.Just[backoff.Backoff](nil),
		rapid.Map(growing(), func(b backoff.Backoff) backoff.Backoff { return backoff.Full(b) }),
		rapid.Map(rapid.SliceOfN(spans(), 1, 4), func(l []time.Duration) backoff.Backoff { return backoff.List(l) }),
		rapid.Just[backoff.Backoff](backoff.Decorrelated{}),
	)
}

// policies draws valid policies, with rules for some of the failures.
func policies(b *rapid.Generator[backoff.Backoff]) *rapid.Generator[reprise.Policy] {
	limit := rapid.OneOf(rapid.Just(time.Duration(0)), spans())
	rule := rapid.Custom(func(t *rapid.T) reprise.Rule {
		return reprise.Rule{
			Match:       reprise.MatchIs(rapid.SampledFrom(failures).Draw(t, "target")),
			MaxAttempts: rapid.IntRange(0, 12).Draw(t, "attempts"),
			GiveUpAfter: limit.Draw(t, "give up after"),
			Backoff:     rapid.OneOf(rapid.Just[backoff.Backoff](nil), b).Draw(t, "backoff"),
		}
	})
	return rapid.Custom(func(t *rapid.T) reprise.Policy {
		p := reprise.Policy{
			MaxAttempts: rapid.IntRange(0, 12).Draw(t, "attempts"),
			GiveUpAfter: limit.Draw(t, "give up after"),
			Backoff:     b.Draw(t, "backoff"),
			Rules:       rapid.SliceOfN(rule, 0, 3).Draw(t, "rules"),
		}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		return p
	})
}

// limits returns the limits of the first rule that matches err. A limit that this rule does not set is the limit of the
// policy.
func limits(p reprise.Policy, err error) (attempts int, giveUpAfter time.Duration) {
	attempts, giveUpAfter = p.MaxAttempts, p.GiveUpAfter
	for _, r := range p.Rules {
		if r.Match(err) {
			if r.MaxAttempts > 0 {
				attempts = r.MaxAttempts
			}
			if r.GiveUpAfter > 0 {
				giveUpAfter = r.GiveUpAfter
			}
			break
		}
	}
	if attempts == 0 {
		attempts = reprise.DefaultMaxAttempts
	}
	return attempts, giveUpAfter
}

func TestDecisionsRespectLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := policies(schedules()).Draw(t, "policy")
		err := rapid.SampledFrom(failures).Draw(t, "error")
		attempts, giveUpAfter := limits(p, err)
		asked := rapid.OneOf(rapid.Just(time.Duration(-1)), spans()).Draw(t, "asked") // -1: the handler does not request a delay
		if asked >= 0 {
			err = fmt.Errorf("handler: %w", reprise.RetryAfter(asked, err))
		}
		attempt, since := rapid.IntRange(-1, 15).Draw(t, "attempt"), spans().Draw(t, "since")

		d := p.Decide(err, attempt, since)
		switch {
		case d.Delay < 0:
			t.Fatalf("delay must not be negative: got %+v", d)
		case !d.Retry && (d.Delay != 0 || d.Reason == ""):
			t.Fatalf("decision to park must have a reason and no delay: got %+v", d)
		case d.Retry && d.Reason != "":
			t.Fatalf("retry must not have a reason to park: got %+v", d)
		case d.Retry && max(1, attempt) >= attempts:
			t.Fatalf("decision after attempt %d of %d must not be a retry: got %+v", attempt, attempts, d)
		case d.Retry && giveUpAfter > 0 && d.Delay > giveUpAfter-since:
			t.Fatalf("retry %s after the first failure must not exceed the limit of %s: got %+v", since, giveUpAfter, d)
		case d.Retry && asked >= 0 && d.Delay != asked:
			t.Fatalf("delay must be the requested %s: got %+v", asked, d)
		case !d.Retry && max(1, attempt) < attempts && giveUpAfter == 0:
			t.Fatalf("decision after attempt %d of %d without a time limit must be a retry: got %+v", attempt, attempts, d)
		}
	})
}

// If a policy decides not to retry a message, it would not retry the message at a later time either.
func TestDecisionsAreFinal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := policies(growing()).Draw(t, "policy")
		err := rapid.SampledFrom(failures).Draw(t, "error")
		attempt, since := rapid.IntRange(1, 15).Draw(t, "attempt"), spans().Draw(t, "since")
		if p.Decide(err, attempt, since).Retry {
			return
		}
		moreAttempts, moreTime := rapid.IntRange(0, 9).Draw(t, "more attempts"), spans().Draw(t, "more time")
		if since > math.MaxInt64-moreTime {
			return
		}
		if d := p.Decide(err, attempt+moreAttempts, since+moreTime); d.Retry {
			t.Fatalf("parked after attempt %d and %s, but retried after %d and %s: %+v",
				attempt, since, attempt+moreAttempts, since+moreTime, d)
		}
	})
}

// The test simulates all attempts of a message, with handlers that take some time.
func TestNoAttemptExceedsLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := policies(schedules()).Draw(t, "policy")
		p.Rules = nil // the same limit for all errors
		attempts, giveUpAfter := limits(p, nil)
		made, now, firstFailed := 0, time.Duration(0), time.Duration(-1)
		for {
			made++
			if firstFailed >= 0 && giveUpAfter > 0 && now-firstFailed > giveUpAfter {
				t.Fatalf("start of attempt %d after the first failure: got %s, want at most %s", made, now-firstFailed, giveUpAfter)
			}
			now += min(spans().Draw(t, "took"), math.MaxInt64-now)
			if firstFailed < 0 {
				firstFailed = now
			}
			d := p.Decide(errScripted, made, now-firstFailed)
			if !d.Retry {
				break
			}
			now += min(d.Delay, math.MaxInt64-now)
		}
		if made > attempts {
			t.Fatalf("attempts: got %d, want at most %d", made, attempts)
		}
	})
}

// Decide accepts arbitrary numbers, including numbers that Validate rejects.
func TestDecideAcceptsInvalidInput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64()
		p := reprise.Policy{
			MaxAttempts: rapid.Int().Draw(t, "attempts"),
			GiveUpAfter: time.Duration(n.Draw(t, "give up after")),
			Backoff:     backoff.Fixed(n.Draw(t, "delay")),
			Rules:       []reprise.Rule{{}, {Match: reprise.MatchIs(errBusy), MaxAttempts: rapid.Int().Draw(t, "rule"), GiveUpAfter: time.Duration(n.Draw(t, "rule"))}},
		}
		err := rapid.SampledFrom(append(failures, &reprise.RetryAfterError{Delay: time.Duration(n.Draw(t, "asked"))})).Draw(t, "error")
		if d := p.Decide(err, rapid.Int().Draw(t, "attempt"), time.Duration(n.Draw(t, "since"))); d.Delay < 0 {
			t.Fatalf("delay must not be negative: got %+v", d)
		}
	})
}

func TestDecide(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	limited := reprise.Policy{MaxAttempts: 3, GiveUpAfter: day, Backoff: backoff.Fixed(2 * time.Hour)}
	ruled := reprise.Policy{
		MaxAttempts: 3,
		Backoff:     backoff.Fixed(time.Second),
		Rules: []reprise.Rule{
			{Match: reprise.MatchIs(errBusy), MaxAttempts: 50, Backoff: backoff.Fixed(time.Hour), GiveUpAfter: 90 * time.Minute},
			{Match: reprise.MatchAs[*fs.PathError](), MaxAttempts: 1},
			{Match: func(err error) bool { return strings.HasPrefix(err.Error(), "read: ") }},
			{Match: reprise.MatchIs(fs.ErrClosed), Park: true},
			{Match: func(error) bool { return true }, MaxAttempts: 2},
		},
	}
	for _, tc := range []struct {
		name    string
		policy  reprise.Policy
		err     error
		attempt int
		since   time.Duration
		want    reprise.Decision
	}{
		{"success", limited, nil, 1, 0, reprise.Decision{}},
		{"first failure", limited, errScripted, 1, 0, reprise.Decision{Retry: true, Delay: 2 * time.Hour}},
		{"the last attempt", limited, errScripted, 3, time.Hour, reprise.Decision{Reason: "3 attempts made"}},
		{"more than the current limit", limited, errScripted, 5, time.Hour, reprise.Decision{Reason: "5 attempts made; the limit is 3"}},
		{"no retries", reprise.Policy{MaxAttempts: 1}, errScripted, 1, 0, reprise.Decision{Reason: "1 attempt made"}},
		{"the default number", reprise.Policy{}, errScripted, 19, 0, reprise.Decision{Reason: "19 attempts made"}},
		{"just in time", limited, errScripted, 2, 22 * time.Hour, reprise.Decision{Retry: true, Delay: 2 * time.Hour}},
		{
			"too late", limited, errScripted, 2, 23 * time.Hour,
			reprise.Decision{Reason: "a retry in 2h would begin 25h after the first failure; the limit is 24h"},
		},
		{
			"a little too late", limited, errScripted, 2, 22*time.Hour + time.Millisecond,
			reprise.Decision{Reason: "a retry in 2h would begin 24h0m1s after the first failure; the limit is 24h"},
		},
		{
			"too late for the requested delay",
			reprise.Policy{GiveUpAfter: time.Second},
			reprise.RetryAfter(1500*time.Millisecond, nil), 1, 0,
			reprise.Decision{Reason: "a retry in 1.5s would begin 1.5s after the first failure; the limit is 1s"},
		},
		{
			"maximum delay", limited, reprise.RetryAfter(math.MaxInt64, nil), 1, time.Hour,
			reprise.Decision{Reason: "a retry in 2562047h47m16.854775807s would begin 2562047h47m16.854775807s after the first failure; the limit is 24h"},
		},
		{"first failure in the future", limited, errScripted, 1, -day, reprise.Decision{Retry: true, Delay: 2 * time.Hour}},
		{"the handler's delay", limited, reprise.RetryAfter(time.Minute, errScripted), 1, 0, reprise.Decision{Retry: true, Delay: time.Minute}},
		{"the handler's delay of 0", limited, reprise.RetryAfter(0, nil), 1, 0, reprise.Decision{Retry: true}},
		{
			"the handler's delay, too late", limited, reprise.RetryAfter(30*time.Hour, errScripted), 1, time.Hour,
			reprise.Decision{Reason: "a retry in 30h would begin 31h after the first failure; the limit is 24h"},
		},
		{"park", limited, fmt.Errorf("no such user: %w", reprise.Park(nil)), 1, 0, reprise.Decision{Reason: "parked by the handler"}},

		{"rule", ruled, fmt.Errorf("till: %w", errBusy), 3, 0, reprise.Decision{Retry: true, Delay: time.Hour}},
		{"attempts of a rule", ruled, errBusy, 50, 0, reprise.Decision{Reason: "50 attempts made (Rules[0])"}},
		{
			"time limit of a rule", ruled, errBusy, 4, time.Hour,
			reprise.Decision{Reason: "a retry in 1h would begin 2h after the first failure; the limit is 1h30m (Rules[0])"},
		},
		{"time limit of a rule, the handler's delay", ruled, reprise.RetryAfter(time.Minute, errBusy), 4, time.Hour, reprise.Decision{Retry: true, Delay: time.Minute}},
		{"rule by type", ruled, fmt.Errorf("config: %w", failures[3]), 1, 0, reprise.Decision{Reason: "1 attempt made (Rules[1])"}},
		{"first matching rule", ruled, failures[2], 2, 0, reprise.Decision{Retry: true, Delay: time.Second}},
		{"rule that parks", ruled, fmt.Errorf("till: %w", fs.ErrClosed), 1, 0, reprise.Decision{Reason: "parked by a rule (Rules[3])"}},
		{"rule that parks, the handler's delay", ruled, reprise.RetryAfter(time.Minute, fs.ErrClosed), 1, 0, reprise.Decision{Reason: "parked by a rule (Rules[3])"}},
		{"rule for the rest", ruled, errScripted, 2, 0, reprise.Decision{Reason: "2 attempts made (Rules[4])"}},
		{"park overrides rules", ruled, reprise.Park(errBusy), 1, 0, reprise.Decision{Reason: "parked by the handler"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.policy.Decide(tc.err, tc.attempt, tc.since); got != tc.want {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	wrapped := fmt.Errorf("a: %w", errors.Join(errScripted, fmt.Errorf("b: %w", &fs.PathError{Err: fs.ErrNotExist})))
	for name, tc := range map[string]struct {
		match func(error) bool
		want  bool
	}{
		"is":               {reprise.MatchIs(errScripted), true},
		"is another error": {reprise.MatchIs(errBusy), false},
		"is, by method Is": {reprise.MatchIs(fs.ErrNotExist), true},
		"as":               {reprise.MatchAs[*fs.PathError](), true},
		"as another type":  {reprise.MatchAs[*reprise.ParkError](), false},
		"as an interface": {reprise.MatchAs[interface {
			error
			Timeout() bool
		}](), true},
	} {
		if got := tc.match(wrapped); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}

func TestValidatePolicy(t *testing.T) {
	t.Parallel()
	rule := func(r reprise.Rule) reprise.Policy {
		return reprise.Policy{Rules: []reprise.Rule{{Match: reprise.MatchIs(errBusy)}, r}}
	}
	for _, tc := range []struct {
		policy reprise.Policy
		want   string // "": valid
	}{
		{reprise.Policy{}, ""},
		{reprise.Policy{MaxAttempts: math.MaxInt32, GiveUpAfter: math.MaxInt64}, ""},
		{rule(reprise.Rule{Match: reprise.MatchAs[*fs.PathError]()}), ""},
		{reprise.Policy{MaxAttempts: -1}, "reprise: Policy.MaxAttempts must be between 0 and 2147483647: got -1 (0 means 19, 1 no retries)"},
		{reprise.Policy{GiveUpAfter: -time.Hour}, "reprise: Policy.GiveUpAfter must not be negative: got -1h0m0s (0 means no limit)"},
		{reprise.Policy{Backoff: backoff.List{}}, "backoff: List must not be empty (List{time.Minute} always waits 1m)"},
		{
			rule(reprise.Rule{}),
			"reprise: Policy.Rules[1].Match must not be nil (use reprise.MatchIs(ErrSomething), reprise.MatchAs[*SomeError]() or another function)",
		},
		{
			rule(reprise.Rule{Match: reprise.MatchIs(nil)}),
			"reprise: Policy.Rules[1].Match must not be nil (use reprise.MatchIs(ErrSomething), reprise.MatchAs[*SomeError]() or another function)",
		},
		{
			rule(reprise.Rule{Match: reprise.MatchIs(errBusy), MaxAttempts: -2}),
			"reprise: Policy.Rules[1].MaxAttempts must be between 0 and 2147483647: got -2 (0 means the MaxAttempts of the Policy, 1 no retries)",
		},
		{
			rule(reprise.Rule{Match: reprise.MatchIs(errBusy), GiveUpAfter: -1}),
			"reprise: Policy.Rules[1].GiveUpAfter must not be negative: got -1ns (0 means the GiveUpAfter of the Policy)",
		},
		{
			rule(reprise.Rule{Match: reprise.MatchIs(errBusy), Backoff: backoff.Fixed(-1)}),
			"reprise: Policy.Rules[1].Backoff: backoff: Fixed must not be negative: got -1ns (0 retries immediately)",
		},
		{
			rule(reprise.Rule{Match: reprise.MatchIs(errBusy), Park: true, MaxAttempts: 2}),
			"reprise: Policy.Rules[1]: MaxAttempts, GiveUpAfter and Backoff must be 0 with Park",
		},
		{
			reprise.Policy{MaxAttempts: -1, GiveUpAfter: -1, Backoff: backoff.Fixed(-1), Rules: []reprise.Rule{{}}},
			"reprise: Policy.MaxAttempts must be between 0 and 2147483647: got -1 (0 means 19, 1 no retries)\n" +
				"reprise: Policy.GiveUpAfter must not be negative: got -1ns (0 means no limit)\n" +
				"backoff: Fixed must not be negative: got -1ns (0 retries immediately)\n" +
				"reprise: Policy.Rules[0].Match must not be nil (use reprise.MatchIs(ErrSomething), reprise.MatchAs[*SomeError]() or another function)",
		},
	} {
		got := ""
		if err := tc.policy.Validate(); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}
