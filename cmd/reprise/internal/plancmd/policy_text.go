package plancmd

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/topology"
)

// policyText formats a plan.
func policyText(s subject, p plan, start time.Time) string {
	var out strings.Builder
	if s.queue != "" {
		out.WriteString(s.queue)
		if s.when != "" {
			fmt.Fprintf(&out, ", %s", s.when)
		}
		out.WriteString(": ")
	}
	fmt.Fprintf(&out, "%s\n%s", s.about, terminal.Plural(s.policy.MaxAttempts, "attempt"))
	if s.policy.MaxAttempts > 1 {
		out.WriteString(" at most")
	}
	if limit := s.policy.GiveUpAfter; limit > 0 {
		fmt.Fprintf(&out, ", none later than %s after the first failure", config.FormatDuration(limit))
	} else if s.policy.MaxAttempts > 1 {
		fmt.Fprintf(&out, ", over %s", p.Parked.At)
	}
	out.WriteString("\n\n" + policyTable(p, start))
	if p.truncated() {
		fmt.Fprintf(&out, "\nNo message can wait longer than %s at a time: longer delays are cut to that.\n", rough(topology.MaxDelay))
	}
	if s.hint != "" {
		out.WriteString("\n" + s.hint + "\n")
	}
	return out.String()
}

// policyTable has a row for each attempt and a row for the parking. If there are many attempts, it contains only the
// first and last attempts.
func policyTable(p plan, start time.Time) string {
	when, title := window.String, "at, from the first attempt"
	if !start.IsZero() {
		layout := "2006-01-02 15:04:05"
		if p.Parked.At.high < time.Minute {
			layout += ".000"
		}
		when = func(w window) string {
			return w.text(func(d time.Duration) string { return start.Add(d).Format(layout) })
		}
		title = start.Format("at (UTC-07:00)")
	}
	var out strings.Builder
	tw := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	row := func(label, after, at string) { fmt.Fprintf(tw, "%8s\t%s \t%s\n", label, after, at) }
	row("attempt ", "after", title)
	const head, tail = 15, 3
	uncertain, n := false, len(p.Attempts)
	for i, a := range p.Attempts {
		if n > head+tail+2 && i >= head && i < n-tail {
			if i == head {
				row("… ", "", "")
			}
			continue
		}
		label, after := fmt.Sprintf("%d ", a.Attempt), a.After.String()
		if a.Attempt == 1 {
			after = ""
		}
		if a.Perhaps {
			uncertain = true
			label = fmt.Sprintf("%d?", a.Attempt)
		}
		row(label, after, when(a.At))
	}
	made := terminal.Plural(p.Parked.Attempts.Max, "attempt")
	if p.Parked.Attempts.Min < p.Parked.Attempts.Max {
		made = fmt.Sprintf("%d – %s", p.Parked.Attempts.Min, made)
	}
	row("parked ", made, when(p.Parked.At))
	_ = tw.Flush() // writes to memory do not fail
	lines := strings.Split(out.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	text := strings.Join(lines, "\n")
	if uncertain {
		text += "? if it has not been parked before\n"
	}
	return text
}

// String returns the window in the form "1s – 2s".
func (w window) String() string { return w.text(rough) }

func (w window) text(one func(time.Duration) string) string {
	low, high := one(w.low), one(w.high)
	if low == high {
		return low
	}
	return low + " – " + high
}

// rough formats a duration, rounded to a unit that depends on its length.
func rough(d time.Duration) string {
	if d == math.MaxInt64 {
		return "centuries"
	}
	for _, unit := range []struct{ from, unit time.Duration }{
		{30 * 24 * time.Hour, time.Hour},
		{24 * time.Hour, time.Minute},
		{time.Minute, time.Second},
		{time.Second, 100 * time.Millisecond},
		{time.Millisecond, time.Millisecond},
	} {
		if d >= unit.from {
			d = d.Round(unit.unit)
			break
		}
	}
	return config.FormatDuration(d)
}
