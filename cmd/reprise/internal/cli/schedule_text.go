package cli

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/topology"
)

// scheduleText is a plan for people: what it is of, a table, a plot.
func scheduleText(s subject, p plan, start time.Time, width int) string {
	var out strings.Builder
	if s.queue != "" {
		out.WriteString(s.queue)
		if s.when != "" {
			fmt.Fprintf(&out, ", %s", s.when)
		}
		out.WriteString(": ")
	}
	fmt.Fprintf(&out, "%s\n%s", s.about, plural(s.policy.MaxAttempts, "attempt"))
	if s.policy.MaxAttempts > 1 {
		out.WriteString(" at most")
	}
	if limit := s.policy.GiveUpAfter; limit > 0 {
		fmt.Fprintf(&out, ", none later than %s after the first failure", config.FormatDuration(limit))
	} else if s.policy.MaxAttempts > 1 {
		fmt.Fprintf(&out, ", over %s", p.parked.at)
	}
	out.WriteString("\n\n")
	out.WriteString(table(p, start))
	if plot := plot(p, width); plot != "" {
		out.WriteString("\n" + plot)
	}
	if p.cut() {
		fmt.Fprintf(&out, "\nNo message can wait longer than %s at a time: longer delays are cut to that.\n", rough(topology.MaxDelay))
	}
	if s.hint != "" {
		out.WriteString("\n" + s.hint + "\n")
	}
	return out.String()
}

// table has a row for each attempt that is shown, and one for the end.
func table(p plan, start time.Time) string {
	when, title := window.String, "at, from the first attempt"
	if !start.IsZero() {
		layout := "2006-01-02 15:04:05"
		if p.end() < time.Minute {
			layout += ".000"
		}
		when = func(w window) string {
			return w.text(func(d time.Duration) string { return start.Add(d).Format(layout) })
		}
		title = start.Format("at (UTC-07:00)")
	}
	rows := [][3]string{{"attempt ", "after", title}}
	perhaps := false
	for _, a := range p.shown() {
		row := [3]string{fmt.Sprintf("%d ", a.attempt), a.after.String(), when(a.at)}
		switch {
		case a.attempt == 0:
			row = [3]string{"… "}
		case a.attempt == 1:
			row[1] = ""
		case a.perhaps:
			perhaps = true
			row[0] = fmt.Sprintf("%d?", a.attempt)
		}
		rows = append(rows, row)
	}
	rows = append(rows, [3]string{"parked ", p.made(), when(p.parked.at)})
	text := align(rows)
	if perhaps {
		text += "? if it has not been parked before\n"
	}
	return text
}

// made is after how many attempts a message is parked.
func (p plan) made() string {
	if p.parked.attempt == p.last {
		return plural(p.last, "attempt")
	}
	return fmt.Sprintf("%d – %d attempts", p.parked.attempt, p.last)
}

// align makes columns: the first to the right, the others to the left.
func align(rows [][3]string) string {
	var widths [3]int
	for _, r := range rows {
		for i, cell := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	pad := func(s string, width int) string { return strings.Repeat(" ", width-utf8.RuneCountInString(s)) }
	var out strings.Builder
	for _, r := range rows {
		line := pad(r[0], widths[0]) + r[0] + "  " + r[1] + pad(r[1], widths[1]) + "   " + r[2]
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return out.String()
}

// String is the window as a person reads it: "1s – 2s".
func (w window) String() string { return w.text(rough) }

func (w window) text(one func(time.Duration) string) string {
	low, high := one(w.low), one(w.high)
	if low == high {
		return low
	}
	return low + " – " + high
}

// rough writes a duration with the digits that matter.
func rough(d time.Duration) string {
	unit := time.Duration(1)
	switch {
	case d == math.MaxInt64:
		return "centuries"
	case d >= 30*24*time.Hour:
		unit = time.Hour
	case d >= 24*time.Hour:
		unit = time.Minute
	case d >= time.Minute:
		unit = time.Second
	case d >= time.Second:
		unit = 100 * time.Millisecond
	case d >= time.Millisecond:
		unit = time.Millisecond
	}
	return config.FormatDuration(d.Round(unit))
}
