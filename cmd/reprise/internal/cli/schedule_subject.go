package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/handler"
	"github.com/reprisemq/reprise/topology"
)

// subject is what a schedule is of.
type subject struct {
	queue  string         // of a worker; "" for flags
	when   string         // how its messages fail; "" for any way
	policy reprise.Policy // its rules applied, with defaults
	delay  func(attempt int) window
	about  string // the delays, in words
	hint   string // what else could be shown
}

// subjectOf looks at a worker as its messages do: there are strategies that
// overrule the policy.
func subjectOf(w reprise.WorkerConfig) subject {
	s := subject{queue: w.Queue, policy: w.Policy.WithDefaults()}
	strategy := w.Strategy.WithDefaults()
	fresh := topology.Delivery{Queue: w.Queue, RoutingKey: w.Queue}
	if left := strategy.Marks.Read(fresh).RetriesLeft; left != topology.Undecided {
		s.policy.MaxAttempts = left + 1
	}
	route := plain(strategy.Route)
	s.about = aboutDelays(route, s.policy.Backoff)
	s.delay = policyDelays(route, s.policy.Backoff, fresh)
	if r, ok := route.(topology.GrowingTTL); ok {
		s.delay = growingDelays(r, fresh, s.policy.MaxAttempts)
	}
	return s
}

// plain returns what the route of a preset is.
func plain(r topology.Route) topology.Route {
	for {
		around, ok := r.(interface{ Unwrap() topology.Route })
		if !ok {
			return r
		}
		r = around.Unwrap()
	}
}

// policyDelays are those of a policy, as a route has them.
func policyDelays(route topology.Route, policy backoff.Backoff, fresh topology.Delivery) func(attempt int) window {
	return func(attempt int) window {
		d := fresh
		d.Redelivered = attempt > 1
		d.Headers = topology.Table{"x-delivery-count": int64(attempt - 1)} // of those that give messages back
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

// aboutDelays says how long messages wait: as the policy has it, unless the route
// takes no notice of that.
func aboutDelays(r topology.Route, policy backoff.Backoff) string {
	switch r := r.(type) {
	case topology.GrowingTTL:
		return aboutGrowing(r)
	case topology.WaitQueue:
		return fmt.Sprintf("%v, as its wait queue has it", backoff.Fixed(r.Delay))
	case topology.DeadLettering:
		return fmt.Sprintf("%v, as its wait queue has it", backoff.Fixed(r.Delay))
	case topology.DelayedRetry:
		return fmt.Sprintf("%v, as its work queue has it", backoff.Linear{Initial: r.Min, Step: r.Min, Max: r.Max})
	case topology.Requeuing:
		return "at once, given back to its queue"
	case topology.Levels:
		return fmt.Sprintf("%v, in whole seconds", policy)
	}
	return fmt.Sprint(policy)
}

// worker finds the one that --queue names, or the only one.
func (c *scheduleCmd) worker(cfg *config.Config) (config.Worker, error) {
	var queues []string
	for _, w := range cfg.Workers {
		if w.Queue == c.Queue || (c.Queue == "" && len(cfg.Workers) == 1) {
			return w, nil
		}
		queues = append(queues, w.Queue)
	}
	if c.Queue == "" {
		return config.Worker{}, usagef("%s has %d workers: choose one with --queue: %s", c.Config, len(queues), strings.Join(queues, ", "))
	}
	return config.Worker{}, usagef("%s has no worker of a queue %q: there are %s", c.Config, c.Queue, strings.Join(queues, ", "))
}

// subjectOfWorker is a worker of a file, as it is for messages that fail in the
// way that flags say.
func (c *scheduleCmd) subjectOfWorker(w config.Worker) (subject, error) {
	key, code, failure := "exit", c.Exit, error(&handler.ExitError{Code: c.Exit})
	other := c.Status
	if w.HTTP != nil {
		key, code, failure = "status", c.Status, &handler.StatusError{Code: c.Status}
		other = c.Exit
	}
	switch {
	case other != 0:
		return subject{}, usagef("the handler of queue %s tells failures apart by --%s", w.Queue, key)
	case c.Status != 0 && !handler.Retried(c.Status), c.Exit == handler.ExitDataErr:
		return subject{}, usagef("--%s %d: such a message is never tried again, whatever the policy", key, code)
	}
	rules := w.Policy.Rules
	w.Policy.Rules = nil
	if code == 0 {
		s := subjectOf(w.WorkerConfig)
		if len(rules) > 0 {
			s.hint = fmt.Sprintf("There are rules for some failures: --%s shows what they do.", key)
		}
		return s, nil
	}
	for _, r := range rules {
		if r.Match(failure) {
			w.Policy.MaxAttempts = cmp.Or(r.MaxAttempts, w.Policy.MaxAttempts)
			w.Policy.GiveUpAfter = cmp.Or(r.GiveUpAfter, w.Policy.GiveUpAfter)
			if r.Backoff != nil {
				w.Policy.Backoff = r.Backoff
			}
			break
		}
	}
	s := subjectOf(w.WorkerConfig)
	s.when = fmt.Sprintf("%s %d", key, code)
	return s, nil
}
