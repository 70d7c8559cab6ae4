package reprise_test

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
)

// A policy with 25 minutes between attempts. The last attempt starts at most an hour after the first failure.
func ExamplePolicy() {
	policy := reprise.Policy{
		MaxAttempts: 20,
		GiveUpAfter: time.Hour,
		Backoff:     backoff.Fixed(25 * time.Minute),
	}
	failure := errors.New("the till is busy")
	since := time.Duration(0) // the first failure
	for attempt := 1; ; attempt++ {
		decision := policy.Decide(failure, attempt, since)
		if !decision.Retry {
			fmt.Println("parked, because", decision.Reason)
			break
		}
		fmt.Println("retry in", decision.Delay)
		since += decision.Delay
	}
	// Output:
	// retry in 25m0s
	// retry in 25m0s
	// parked, because a retry in 25m would begin 1h15m after the first failure; the limit is 1h
}

// Rules override the policy for certain errors.
func ExampleRule() {
	errNoCard := errors.New("the customer has no card")
	policy := reprise.Policy{
		Backoff: backoff.Exponential{Initial: time.Second},
		Rules: []reprise.Rule{
			{Match: reprise.MatchIs(errNoCard), Park: true},                                                 // a retry cannot succeed
			{Match: reprise.MatchAs[*net.OpError](), MaxAttempts: 100, Backoff: backoff.Fixed(time.Minute)}, // an outage is temporary
		},
	}
	for _, err := range []error{
		errors.New("something else"),
		fmt.Errorf("order 17: %w", errNoCard),
		fmt.Errorf("order 18: %w", &net.OpError{Op: "dial", Err: errors.New("connection refused")}),
	} {
		decision := policy.Decide(err, 1, 0)
		fmt.Printf("%v: retry %t, delay %s, %q\n", err, decision.Retry, decision.Delay, decision.Reason)
	}
	// Output:
	// something else: retry true, delay 1s, ""
	// order 17: the customer has no card: retry false, delay 0s, "parked by a rule (Rules[0])"
	// order 18: dial: connection refused: retry true, delay 1m0s, ""
}

// A policy decides without a broker, so a test can call it directly. The outcomes of a handler, such as Park, also
// apply.
func ExamplePolicy_Decide() {
	policy := reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(time.Minute)}
	busy := errors.New("507 queue is full")

	fmt.Printf("%+v\n", policy.Decide(busy, 1, 0))
	fmt.Printf("%+v\n", policy.Decide(reprise.RetryAfter(time.Hour, busy), 2, time.Minute))
	fmt.Printf("%+v\n", policy.Decide(busy, 3, 61*time.Minute))
	fmt.Printf("%+v\n", policy.Decide(reprise.Park(busy), 1, 0))
	// Output:
	// {Retry:true Delay:1m0s Pause:0s Reason: Uncounted:false}
	// {Retry:true Delay:1h0m0s Pause:0s Reason: Uncounted:false}
	// {Retry:false Delay:0s Pause:0s Reason:3 attempts made Uncounted:false}
	// {Retry:false Delay:0s Pause:0s Reason:parked by the handler Uncounted:false}
}

func ExampleMatchIs() {
	match := reprise.MatchIs(net.ErrClosed)
	fmt.Println(match(fmt.Errorf("charge: %w", net.ErrClosed)), match(errors.New("charge: declined")))
	// Output: true false
}

func ExampleMatchAs() {
	match := reprise.MatchAs[*net.DNSError]()
	fmt.Println(match(fmt.Errorf("charge: %w", &net.DNSError{Err: "no such host", Name: "till"})), match(net.ErrClosed))
	// Output: true false
}
