// Package plancmd implements the commands that show what a configuration does: policy and topology.
package plancmd

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/handler"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/brief"
)

// Policy is reprise policy.
type Policy struct {
	Config []string `short:"c" sep:"none" placeholder:"FILE" help:"Configuration with the worker to show. Replaces the other policy flags."`
	Queue  string   `placeholder:"NAME" help:"Work queue in -c FILE. Required if the file has several."`
	Status int      `placeholder:"N" help:"HTTP status of all attempts, for the rules in -c FILE."`
	Exit   int      `placeholder:"N" help:"Exit code of all attempts, for the rules in -c FILE."`

	Initial     time.Duration   `placeholder:"TIME" help:"First delay of a growing schedule. Default 1s, or --step."`
	Factor      float64         `placeholder:"N" help:"Ratio of consecutive delays. Default 2, with --jitter decorrelated 3."`
	Step        time.Duration   `placeholder:"TIME" help:"Difference of consecutive delays. Replaces --factor."`
	Max         time.Duration   `placeholder:"TIME" help:"Maximum delay of a growing schedule. Default 1h."`
	Fixed       time.Duration   `placeholder:"TIME" help:"Constant delay."`
	List        []time.Duration `placeholder:"TIMES" help:"List of delays, such as 1s,10s,1m. The last delay repeats."`
	Jitter      string          `placeholder:"KIND" help:"Random part of each delay: none, equal (half), full, or decorrelated (between --initial and --factor times the previous delay). Default: equal for growing delays, else none."`
	Attempts    int             `placeholder:"N" help:"Number of attempts. Default 19."`
	GiveUpAfter time.Duration   `name:"give-up-after" placeholder:"TIME" help:"Maximum time from the first failure to the last attempt. Default: no limit."`

	Start  date   `placeholder:"TIME" help:"Time of the first attempt, such as 2026-03-01T09:00:00Z. Adds dates to the output."`
	Format string `enum:"text,json" default:"text" placeholder:"FORM" help:"Output format: text or json. Default ${default}."`
}

// Help implements kong.HelpProvider.
func (Policy) Help() string {
	return `Shows the attempts of a message that always fails, and the time of parking, without a connection to a broker.
Without flags, it shows the default policy. For random delays it shows the minimum and the maximum. The duration of
attempts counts as zero. A question mark, as in 9?, marks an attempt that some messages do not reach before the time limit. For
routes and presets with fixed delays, the table shows these delays.

--format json prints one line, with times in seconds after the first attempt. Some fields are optional: give_up_after;
queue and when (with -c); perhaps (for 9?); dates (with --start).

The flags correspond to the keys of the configuration: --initial, --factor and --max for exponential delays;
--initial, --step and --max for linear delays; --fixed or --list for other schedules.

Examples:
  reprise policy --initial 2s --factor 3 --max 6h --attempts 12
  reprise policy --list 1s,10s,1m --give-up-after 1d --attempts 1000
  reprise policy -c reprise.yaml --queue orders
  reprise policy -c reprise.yaml --queue orders --status 503
`
}

// date is a time on the command line.
type date time.Time

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *date) UnmarshalText(text []byte) error {
	parsed, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return fmt.Errorf("%s is not a date (examples: 2026-03-01T09:00:00Z, 2026-03-01T10:00:00+01:00)", brief.Quoted(string(text)))
	}
	*d = date(parsed)
	return nil
}

// Run prints the schedule.
func (c *Policy) Run(streams terminal.IO, command *kong.Context) error {
	s, err := c.subject(command.Flags())
	if err != nil {
		return err
	}
	p := newPlan(s)
	p.date(time.Time(c.Start))
	return streams.Result(c.Format == "json", p, policyText(s, p, time.Time(c.Start)))
}

// subject returns the policy to show.
func (c *Policy) subject(flags []*kong.Flag) (subject, error) {
	policy, given, err := c.policy(flags)
	if len(c.Config) == 0 {
		if c.Queue != "" || c.Status != 0 || c.Exit != 0 {
			return subject{}, exit.Usagef("--queue, --status and --exit require -c FILE")
		}
		return subjectOf(reprise.WorkerConfig{Policy: policy}), err
	}
	if len(given) > 0 {
		return subject{}, exit.Usagef("-c and --%s exclude each other", given[0])
	}
	cfg, err := config.Load(c.Config...)
	if err != nil {
		return subject{}, exit.Usage(err)
	}
	w, err := c.worker(cfg)
	if err != nil {
		return subject{}, err
	}
	return c.subjectOfWorker(w)
}

// policy returns the policy that the flags specify, and the names of the given flags.
func (c *Policy) policy(flags []*kong.Flag) (p reprise.Policy, given []string, err error) {
	schedule := []string{"initial", "factor", "step", "max", "fixed", "list", "jitter"}
	times := map[string]time.Duration{"initial": c.Initial, "step": c.Step, "max": c.Max, "fixed": c.Fixed, "give-up-after": c.GiveUpAfter}
	b := config.Backoff{Initial: c.Initial, Factor: c.Factor, Step: c.Step, Max: c.Max, Fixed: c.Fixed, List: c.List, Jitter: c.Jitter}
	for _, flag := range flags {
		name := flag.Name
		if slices.Contains(schedule, name) && flag.Set {
			b.Keys = append(b.Keys, name)
		} else if !flag.Set || name != "attempts" && name != "give-up-after" {
			continue
		}
		given = append(given, name)
		switch d, isTime := times[name]; {
		case isTime && d < 0:
			err = exit.Usagef("--%s must not be negative: got %s", name, d)
		case isTime && d == 0 && name != "fixed":
			err = exit.Usagef("--%s must be positive: got 0s", name)
		case name == "attempts" && (c.Attempts < 1 || c.Attempts > config.MaxAttempts):
			err = exit.Usagef("--attempts must be 1 to %[2]d: got %[1]d", c.Attempts, config.MaxAttempts)
		case name == "list" && len(c.List) == 0:
			err = exit.Usagef("--list must not be empty (example: 1s,10s,1m)")
		case name == "list" && slices.Min(c.List) < 0:
			err = exit.Usagef("--list must not contain a negative delay: got %s", slices.Min(c.List))
		case name == "jitter" && c.Jitter == "":
			err = exit.Usagef("--jitter must be none, equal, full or decorrelated: got %s", brief.Quoted(c.Jitter))
		}
	}
	if err != nil {
		return p, given, err
	}
	delays, conflicts := b.Schedule(func(key string) string { return "--" + key })
	if len(conflicts) > 0 {
		return p, given, exit.Usagef("%s", conflicts[0].Text)
	}
	p = reprise.Policy{MaxAttempts: c.Attempts, GiveUpAfter: c.GiveUpAfter, Backoff: delays}
	if err := p.Validate(); err != nil {
		return p, given, exit.Usage(err)
	}
	return p, given, nil
}

// worker returns the worker of --queue, or the only worker.
func (c *Policy) worker(cfg *config.Config) (config.Worker, error) {
	workers, err := workersOf(cfg, c.Queue)
	if err != nil {
		return config.Worker{}, err
	}
	if len(workers) > 1 {
		return config.Worker{}, exit.Usagef("%s has %d workers (select one with --queue: %s)", cfg.Name(), len(workers), queuesOfWorkers(workers))
	}
	return workers[0], nil
}

// workersOf returns the worker of a queue, or all workers of the file if queue is "".
func workersOf(cfg *config.Config, queue string) ([]config.Worker, error) {
	if queue == "" {
		return cfg.Workers, nil
	}
	for _, w := range cfg.Workers {
		if w.Queue == queue {
			return []config.Worker{w}, nil
		}
	}
	return nil, exit.Usagef("%s has no worker of queue %s (its queues: %s)", cfg.Name(), brief.Quoted(queue), queuesOfWorkers(cfg.Workers))
}

func queuesOfWorkers(workers []config.Worker) string {
	var queues []string
	for _, w := range workers {
		queues = append(queues, w.Queue)
	}
	return strings.Join(queues, ", ")
}

// subjectOfWorker returns the policy of a worker for messages that fail in the way that the flags specify.
func (c *Policy) subjectOfWorker(w config.Worker) (subject, error) {
	key, code, other, failure := "exit", c.Exit, c.Status, error(&handler.ExitError{Code: c.Exit})
	if w.HTTP != nil {
		key, code, other, failure = "status", c.Status, c.Exit, &handler.StatusError{Code: c.Status}
	}
	switch {
	case other != 0:
		return subject{}, exit.Usagef("the handler of queue %s requires --%s", w.Queue, key)
	case c.Status != 0 && !handler.Retried(c.Status), c.Exit == handler.ExitDataErr:
		return subject{}, exit.Usagef("--%s %d is never retried", key, code)
	}
	rules := w.Policy.Rules
	w.Policy.Rules = nil
	if code == 0 {
		s := subjectOf(w.WorkerConfig)
		if len(rules) > 0 {
			s.hint = fmt.Sprintf("The file has rules for some failures: --%s shows their delays.", key)
		}
		return s, nil
	}
	for _, r := range rules {
		if r.Match(failure) {
			if r.Uncounted {
				return subject{}, exit.Usagef("--%s %d is retried without limit, because a rule does not count its attempts (uncounted: true)", key, code)
			}
			w.Policy.MaxAttempts = cmp.Or(r.MaxAttempts, w.Policy.MaxAttempts)
			if r.Park {
				w.Policy.MaxAttempts = 1
			}
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
