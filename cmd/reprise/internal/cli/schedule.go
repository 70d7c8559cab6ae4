package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
)

type scheduleCmd struct {
	Config string `short:"c" placeholder:"FILE" help:"Show a worker of this configuration, instead of what flags say."`
	Queue  string `placeholder:"NAME" help:"With -c: the worker's queue. Needed if the file has several."`
	Status int    `placeholder:"N" help:"With -c: a message for which the service always answers N, for which there may be rules."`
	Exit   int    `placeholder:"N" help:"With -c: a message for which the program always exits with N, for which there may be rules."`

	policyFlags

	Start  date   `placeholder:"TIME" help:"When the first attempt runs, such as 2026-03-01T09:00:00Z: shows dates."`
	Format string `enum:"text,json" default:"text" placeholder:"FORM" help:"Form of the output: text or json. Default ${default}."`
}

// Help shows examples below the flags.
func (scheduleCmd) Help() string {
	return `Shows when the attempts of a message run that always fails, and when it is parked. Without
flags: the default policy. Nothing is run, and no broker needed. Where delays are random, the
shortest and the longest are shown. Attempts are supposed to take no time.

Flags are the keys of the configuration: --initial, --factor and --max for delays that grow,
--initial, --step and --max for delays that grow evenly, --fixed or --list for others.

Examples:
  reprise schedule --initial 2s --factor 3 --max 6h --attempts 12
  reprise schedule --list 1s,10s,1m --give-up-after 1d --attempts 1000
  reprise schedule -c reprise.yaml --queue orders
  reprise schedule -c reprise.yaml --queue orders --status 503
`
}

// Run prints the schedule.
func (c *scheduleCmd) Run(streams IO) error {
	s, err := c.subject()
	if err != nil {
		return err
	}
	p := newPlan(s.delay, s.policy.MaxAttempts, s.policy.GiveUpAfter)
	if c.Format == "json" {
		return json.NewEncoder(streams.Stdout).Encode(scheduleJSON(s, p, time.Time(c.Start)))
	}
	_, err = fmt.Fprint(streams.Stdout, scheduleText(s, p, time.Time(c.Start), min(widthOr80(streams), 120)))
	return err
}

// subject is the policy to show.
func (c *scheduleCmd) subject() (subject, error) {
	if c.Config == "" {
		if c.Queue != "" || c.Status != 0 || c.Exit != 0 {
			return subject{}, usagef("--queue, --status and --exit choose from a configuration: give it with -c FILE")
		}
		policy, err := c.policy()
		return subjectOf(reprise.WorkerConfig{Policy: policy}), err
	}
	if key := c.first(); key != "" {
		return subject{}, usagef("-c shows what the file says, and --%s something else: give one of the two", key)
	}
	cfg, err := config.Load(c.Config)
	if err != nil {
		return subject{}, usageError{err}
	}
	w, err := c.worker(cfg)
	if err != nil {
		return subject{}, err
	}
	return c.subjectOfWorker(w)
}
