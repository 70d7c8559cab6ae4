package failedcmd

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/reprisemq/reprise/cmd/reprise/internal/content"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// messageText formats a message and the newest acts on it. The argument shown is the edited or the original content.
func messageText(m api.Message, acts []store.Act, shown api.Content, now time.Time, width int) string {
	var b strings.Builder
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-11s %s\n", name, terminal.Fill(value, width, 12))
		}
	}
	state := m.State
	switch {
	case m.State == string(failed.Discarded):
		state += ": " + m.Discarded
	case m.ReplayedBy != 0 && m.State != string(failed.Failed):
		state += fmt.Sprintf(" by replay %d", m.ReplayedBy)
		if m.Outcome != "" {
			state += ": " + outcomeText(m.Outcome, m.WhyUnknown)
		}
	}
	field("message", strconv.FormatInt(m.ID, 10))
	field("state", state)
	if m.Erased {
		field("content", "erased")
	}
	if m.Back != 0 {
		field("sent before", fmt.Sprintf("by replay %d, as message %d", m.Back, m.BackOf))
	}
	queue := string(m.Queue)
	if m.Queue == m.FailedQueue {
		queue = "not known"
	}
	field("queue", fmt.Sprintf("%s (taken from %s)", queue, m.FailedQueue))
	if m.Exchange != "" || m.RoutingKey != "" {
		exchange := "the default exchange"
		if m.Exchange != "" {
			exchange = string(m.Exchange)
		}
		field("published", fmt.Sprintf("to %s with the key %s", exchange, m.RoutingKey))
	}
	field("message id", string(m.MessageID))
	last := fmt.Sprintf("%s (%s)", terminal.Ago(m.LastFailed, now), m.LastFailed.Local().Format(time.RFC3339))
	switch {
	case m.Attempts > 1:
		last = fmt.Sprintf("%s, the last %s", terminal.Plural(m.Attempts, "attempt"), last)
	case m.Attempts == 1:
		last = "1 attempt, " + last
	}
	field("failed", last)
	field("error", m.Error)
	field("reason", m.Reason)
	field("not sent", m.Refused)
	field("group", strconv.FormatInt(m.Group, 10))
	for _, a := range acts {
		act := fmt.Sprintf("%s by %s, %s", a.Verb, a.Actor, terminal.Ago(a.Time, now))
		if reason, _ := a.Details["reason"].(string); reason != "" {
			act += ": " + reason
		}
		field(fmt.Sprintf("act %d", a.ID), act)
	}
	b.WriteString(attemptsText(m, width))
	b.WriteString(content.Properties(shown.Properties))
	b.WriteString(content.Headers(topology.Table(shown.Headers), width))
	edited := ""
	if m.Edited != nil {
		edited = ", edited"
	}
	fmt.Fprintf(&b, "\nbody (%s%s)\n", content.Bytes(len(shown.Body)), edited)
	b.WriteString(content.Body(topology.Table(shown.Headers), shown.Body))
	if m.Redacted {
		b.WriteString("\nSecrets are hidden: an administrator sees them.\n")
	}
	return b.String()
}

// outcomeText returns the outcome of a message, with the reason in parentheses if the outcome is unknown.
func outcomeText(outcome, whyUnknown string) string {
	if whyUnknown == "" {
		return outcome
	}
	return outcome + " (" + whyUnknown + ")"
}

func attemptsText(m api.Message, width int) string {
	if len(m.Errors) == 0 {
		return ""
	}
	t := terminal.NewTable([]terminal.Column{{Name: "ATTEMPT", Right: true}, {Name: "ENDED"}, {Name: "TOOK", Right: true}, {Name: "HOST", Least: 10}, {Name: "ERROR", Least: 20}})
	for i, e := range m.Errors {
		when, took := "-", "-"
		if !e.Time.IsZero() {
			when = e.Time.Local().Format("2006-01-02 15:04:05")
		}
		if e.DurationMS > 0 {
			took = (time.Duration(e.DurationMS) * time.Millisecond).String()
		}
		t.Add(strconv.Itoa(e.Attempt), when, took, e.Host, e.Error)
		if i == 0 && m.ErrorsDropped > 0 {
			t.Add("…", "", "", "", fmt.Sprintf("(%s are not recorded)", terminal.Plural(m.ErrorsDropped, "attempt")))
		}
	}
	return "\n" + t.Text(width)
}
