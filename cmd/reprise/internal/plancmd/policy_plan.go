package plancmd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/topology"
)

// subject is the effective policy for messages of a worker.
type subject struct {
	queue  string         // queue of the worker; "" for flags
	when   string         // type of failure; "": any
	policy reprise.Policy // policy after its rules, with defaults
	delay  func(attempt int) window
	about  string // description of the delays
	hint   string // suggestion for further options
}

// subjectOf returns the subject of a worker. If the marks of the strategy count the remaining retries, they override
// the number of attempts in the policy.
func subjectOf(w reprise.WorkerConfig) subject {
	s := subject{queue: w.Queue, policy: w.Policy.WithDefaults()}
	strategy := w.Strategy.WithDefaults()
	fresh := topology.Delivery{Queue: w.Queue, RoutingKey: w.Queue}
	if left := strategy.Marks.Read(fresh).RetriesLeft; left != topology.Undecided {
		s.policy.MaxAttempts = left + 1
	}
	route := strategy.Route
	for {
		preset, ok := route.(interface{ Unwrap() topology.Route })
		if !ok {
			break
		}
		route = preset.Unwrap()
	}
	s.about = aboutDelays(route, s.policy.Backoff)
	s.delay = policyDelays(route, s.policy.Backoff, fresh)
	if r, ok := route.(topology.GrowingTTL); ok {
		s.delay = growingDelays(r, fresh, s.policy.MaxAttempts)
	}
	return s
}

// policyDelays returns the delays of a policy after the route has adjusted them.
func policyDelays(route topology.Route, policy backoff.Backoff, fresh topology.Delivery) func(attempt int) window {
	return func(attempt int) window {
		d := fresh
		d.Redelivered = attempt > 1
		d.Headers = topology.Table{"x-delivery-count": int64(attempt - 1)} // set on requeued messages
		wait := func(delay time.Duration) time.Duration {
			hop, err := route.Wait(d, delay)
			if err != nil {
				return delay
			}
			return hop.Delay
		}
		low, high := backoff.Range(policy, attempt)
		return window{wait(low), wait(high)}
	}
}

// growingDelays returns the delays of a route that computes each delay from the previous delay. It simulates two
// messages: one with the shortest and one with the longest random delays.
func growingDelays(r topology.GrowingTTL, fresh topology.Delivery, attempts int) func(attempt int) window {
	follow := func(random float64) []time.Duration {
		r, d := r, fresh
		r.Rand = func() float64 { return random }
		delays := make([]time.Duration, attempts)
		for i := range delays {
			hop, err := r.Wait(d, 0)
			if err != nil {
				break // the message is parked
			}
			delays[i] = hop.Delay
			d.Headers = topology.Table{"x-death": []any{topology.Table{
				"queue":               strings.ReplaceAll(cmp.Or(r.WaitQueue, "{queue}.wait"), "{queue}", d.Queue),
				"reason":              "expired",
				"count":               int64(1),
				"original-expiration": strconv.FormatInt(hop.TTL.Milliseconds(), 10),
			}}}
		}
		return delays
	}
	low, high := follow(0), follow(math.Nextafter(1, 0))
	return func(attempt int) window { return window{low[attempt-1], high[attempt-1]} }
}

// aboutDelays describes the delays of the policy, or of a route that ignores the policy.
func aboutDelays(r topology.Route, policy backoff.Backoff) string {
	switch r := r.(type) {
	case topology.GrowingTTL:
		first := cmp.Or(r.First, topology.DefaultExpirationsFirst)
		about := fmt.Sprintf("exponential from %s ×%v up to %s", config.FormatDuration(first), cmp.Or(r.Factor, topology.DefaultExpirationsFactor),
			config.FormatDuration(cmp.Or(r.Max, max(topology.DefaultGrowingTTLMax, first))))
		if jitter := cmp.Or(r.Jitter, topology.DefaultGrowingTTLJitter); jitter > 0 {
			about += fmt.Sprintf(", ±%v%%", math.Round(1000*jitter)/10)
		}
		return about + ", computed from the previous delay in x-death"
	case topology.WaitQueue:
		return fmt.Sprintf("%v, set by the wait queue", backoff.Fixed(r.Delay))
	case topology.DeadLettering:
		return fmt.Sprintf("%v, set by the wait queue", backoff.Fixed(r.Delay))
	case topology.DelayedRetry:
		return fmt.Sprintf("%v, set by the work queue", backoff.Linear{Initial: r.Min, Step: r.Min, Max: r.Max})
	case topology.Requeuing:
		return "immediately, requeued"
	case topology.Levels:
		return fmt.Sprintf("%v, in whole seconds", policy)
	}
	return fmt.Sprint(policy)
}

// plan contains the times of the attempts of a message that always fails, and the time at which it is parked. Times
// are durations since the first attempt. Attempts are assumed to take no time. The JSON form is the output of
// --format json.
type plan struct {
	Queue       string           `json:"queue,omitempty"`
	When        string           `json:"when,omitempty"`
	Backoff     string           `json:"backoff"`
	MaxAttempts int              `json:"max_attempts"`
	GiveUpAfter float64          `json:"give_up_after,omitempty"` // seconds
	Attempts    []plannedAttempt `json:"attempts"`
	Parked      struct {
		Attempts struct { // range of the number of the last attempt
			Min int `json:"min"`
			Max int `json:"max"`
		} `json:"attempts"`
		At    window `json:"at"`
		Dates *dates `json:"dates,omitempty"`
	} `json:"parked"`
}

// plannedAttempt is an attempt in a plan.
type plannedAttempt struct {
	Attempt int    `json:"attempt"`
	Perhaps bool   `json:"perhaps,omitempty"` // the message may already be parked
	After   window `json:"after"`             // delay before the attempt
	At      window `json:"at"`
	Dates   *dates `json:"dates,omitempty"`
}

// window is the range of a duration that depends on jitter.
type window struct{ low, high time.Duration }

type dates struct {
	Min time.Time `json:"min"`
	Max time.Time `json:"max"`
}

// MarshalJSON implements json.Marshaler. The unit is seconds.
func (w window) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Min float64 `json:"min"`
		Max float64 `json:"max"`
	}{w.low.Seconds(), w.high.Seconds()})
}

// plus returns the sum of two windows, without overflow.
func (w window) plus(o window) window {
	return window{w.low + min(o.low, math.MaxInt64-w.low), w.high + min(o.high, math.MaxInt64-w.high)}
}

// newPlan simulates a message. With jitter, some messages may be parked while other messages are retried. The plan
// contains an attempt if at least one message can have it. The window of the parking time also covers messages that
// are parked before the last attempt in the plan.
func newPlan(s subject) plan {
	p := plan{Queue: s.queue, When: s.when, Backoff: s.about, MaxAttempts: s.policy.MaxAttempts, GiveUpAfter: s.policy.GiveUpAfter.Seconds()}
	limit := cmp.Or(s.policy.GiveUpAfter, math.MaxInt64)
	row := plannedAttempt{Attempt: 1}
	for {
		shown := row
		shown.At.high = min(row.At.high, limit)
		shown.Perhaps = row.At.high > limit
		p.Attempts = append(p.Attempts, shown)
		if row.Attempt == s.policy.MaxAttempts {
			p.park(row.Attempt, shown.At)
			return p
		}
		wait := s.delay(row.Attempt)
		next := row.At.plus(wait)
		if next.high > limit { // messages with the longest delay exceed the limit, so they are parked
			p.park(row.Attempt, window{max(row.At.low, limit-wait.high), shown.At.high})
		}
		if next.low > limit {
			return p
		}
		row = plannedAttempt{Attempt: row.Attempt + 1, After: wait, At: next}
	}
}

// park records that a message may be parked after an attempt.
func (p *plan) park(attempt int, at window) {
	if p.Parked.Attempts.Min == 0 {
		p.Parked.Attempts.Min, p.Parked.At = attempt, at
	}
	p.Parked.Attempts.Max = attempt
	p.Parked.At = window{min(p.Parked.At.low, at.low), max(p.Parked.At.high, at.high)}
}

// date sets the dates, unless start is zero.
func (p *plan) date(start time.Time) {
	if start.IsZero() {
		return
	}
	of := func(w window) *dates { return &dates{start.Add(w.low), start.Add(w.high)} }
	for i, a := range p.Attempts {
		p.Attempts[i].Dates = of(a.At)
	}
	p.Parked.Dates = of(p.Parked.At)
}

// truncated reports whether a delay reaches topology.MaxDelay, so the policy may specify a longer delay.
func (p plan) truncated() bool {
	return slices.ContainsFunc(p.Attempts, func(a plannedAttempt) bool { return a.After.high == topology.MaxDelay })
}
