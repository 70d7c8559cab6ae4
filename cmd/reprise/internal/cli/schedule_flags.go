package cli

import (
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
)

// policyFlags are a policy on a command line, in the words of the configuration.
type policyFlags struct {
	Initial *duration  `placeholder:"TIME" help:"The first delay of delays that grow. Default 1s, or --step."`
	Factor  *float64   `placeholder:"N" help:"How much longer each delay is than the one before. Default 2, or 3 with --jitter decorrelated."`
	Step    *duration  `placeholder:"TIME" help:"By how much each delay is longer than the one before, in place of --factor."`
	Max     *duration  `placeholder:"TIME" help:"The longest delay. Default 1h."`
	Fixed   *duration  `placeholder:"TIME" help:"The same delay always."`
	List    []duration `placeholder:"TIMES" help:"The delays one by one, such as 1s,10s,1m; then always the last."`
	Jitter  string     `placeholder:"KIND" help:"What is random of each delay: none, equal (the second half), full, or decorrelated. Default: equal where delays grow, else none."`

	Attempts    *int      `placeholder:"N" help:"How often a message is tried. Default 19."`
	GiveUpAfter *duration `name:"give-up-after" placeholder:"TIME" help:"How long after its first failure a message may be tried again. Default: no limit."`
}

// duration is a time on a command line, as in the configuration: 30s, 1h30m, 7d.
type duration time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := config.ParseDuration(string(text))
	if err == nil && parsed < 0 {
		err = fmt.Errorf("%s is negative: give a time such as 30s", text)
	}
	*d = duration(parsed)
	return err
}

// date is a moment on a command line.
type date time.Time

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *date) UnmarshalText(text []byte) error {
	parsed, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return fmt.Errorf("%q is no date: write one such as 2026-03-01T09:00:00Z, or 2026-03-01T10:00:00+01:00", text)
	}
	*d = date(parsed)
	return nil
}

// first names a flag that was given, "" for none.
func (f *policyFlags) first() string {
	if keys := f.backoff().Keys; len(keys) > 0 {
		return keys[0]
	}
	switch {
	case f.Attempts != nil:
		return "attempts"
	case f.GiveUpAfter != nil:
		return "give-up-after"
	}
	return ""
}

func (f *policyFlags) backoff() config.Backoff {
	b := config.Backoff{Jitter: f.Jitter}
	given := func(key string, yes bool) {
		if yes {
			b.Keys = append(b.Keys, key)
		}
	}
	take := func(key string, from *duration, to *time.Duration) {
		if from != nil {
			*to = time.Duration(*from)
		}
		given(key, from != nil)
	}
	take("initial", f.Initial, &b.Initial)
	take("step", f.Step, &b.Step)
	take("max", f.Max, &b.Max)
	take("fixed", f.Fixed, &b.Fixed)
	if f.Factor != nil {
		b.Factor = *f.Factor
	}
	given("factor", f.Factor != nil)
	for _, d := range f.List {
		b.List = append(b.List, time.Duration(d))
	}
	given("list", f.List != nil)
	given("jitter", f.Jitter != "")
	return b
}

// policy is what the flags say.
func (f *policyFlags) policy() (reprise.Policy, error) {
	var p reprise.Policy
	for _, flag := range []struct {
		name string
		time *duration
	}{{"initial", f.Initial}, {"step", f.Step}, {"max", f.Max}, {"give-up-after", f.GiveUpAfter}} {
		if flag.time != nil && *flag.time == 0 {
			return p, usagef("--%s 0s: give a time above zero", flag.name)
		}
	}
	if f.List != nil && len(f.List) == 0 {
		return p, usagef("--list is empty: give delays such as 1s,10s,1m")
	}
	schedule, misfits := f.backoff().Schedule(func(key string) string { return "--" + key })
	if len(misfits) > 0 {
		return p, usagef("%s", misfits[0].Text)
	}
	p.Backoff = schedule
	if f.Attempts != nil {
		if p.MaxAttempts = *f.Attempts; p.MaxAttempts < 1 || p.MaxAttempts > config.MaxAttempts {
			return p, usagef("--attempts %d: give 1 to %d", p.MaxAttempts, config.MaxAttempts)
		}
	}
	if f.GiveUpAfter != nil {
		p.GiveUpAfter = time.Duration(*f.GiveUpAfter)
	}
	if err := p.Validate(); err != nil {
		return p, usageError{err}
	}
	return p, nil
}
