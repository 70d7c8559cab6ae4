package failedcmd

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/tablejson"
	"github.com/reprisemq/reprise/topology"
)

// messageText formats a message and the newest acts on it. The argument content is the edited or the original content.
func messageText(m api.Message, acts []store.Act, content api.Content, now time.Time, width int) string {
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
	b.WriteString(propertiesText(content.Properties))
	b.WriteString(headersText(topology.Table(content.Headers), width))
	edited := ""
	if m.Edited != nil {
		edited = ", edited"
	}
	fmt.Fprintf(&b, "\nbody (%s%s)\n", bytesText(len(content.Body)), edited)
	b.WriteString(bodyText(content.Body))
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

func propertiesText(shown api.Properties) string {
	p := shown.Properties()
	var b strings.Builder
	for _, x := range [][2]string{
		{"content-type", p.ContentType},
		{"content-encoding", p.ContentEncoding},
		{"correlation-id", p.CorrelationID},
		{"reply-to", p.ReplyTo},
		{"type", p.Type},
		{"app-id", p.AppID},
		{"user-id", p.UserID},
		{"expiration", p.Expiration},
	} {
		if x[1] != "" {
			fmt.Fprintf(&b, "  %s: %s\n", x[0], terminal.OneLine(x[1]))
		}
	}
	if p.Priority > 0 || p.Zero.Has(reprise.PropertyPriority) {
		fmt.Fprintf(&b, "  priority: %d\n", p.Priority)
	}
	if !p.Timestamp.IsZero() {
		fmt.Fprintf(&b, "  timestamp: %s\n", p.Timestamp.Local().Format(time.RFC3339))
	}
	if b.Len() == 0 {
		return ""
	}
	return "\nproperties\n" + b.String()
}

// headersText formats the headers. Instead of bookkeeping headers, it shows their number, because the text above
// contains their information.
func headersText(headers topology.Table, width int) string {
	var b strings.Builder
	left := 0
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if bookkeeping(name) {
			left++
			continue
		}
		line := fmt.Sprintf("  %s: %s", terminal.OneLine(name), terminal.OneLine(headerText(headers[name])))
		if width > 0 {
			line = terminal.Cut(line, width)
		}
		b.WriteString(line + "\n")
	}
	if left > 0 {
		fmt.Fprintf(&b, "  (%s of earlier attempts hidden; use --json)\n", terminal.Plural(left, "header"))
	}
	if b.Len() == 0 {
		return ""
	}
	return "\nheaders\n" + b.String()
}

// headerText formats the value of a header. Arrays and tables are JSON.
func headerText(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	if text, ok := tablejson.Text(value); ok {
		return text
	}
	text, err := valueJSON(value)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return text
}

func valueJSON(value any) (string, error) {
	text, err := tablejson.EncodeList([]any{value})
	return strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), err
}

// bookkeeping reports whether attempts, replays or the broker add headers with this name. A replay does not send such
// headers.
func bookkeeping(name string) bool {
	return (topology.Trail{}).Owns(name) || name == topology.HeaderReplay || amqpvalue.IsBrokerHeader(name)
}

// Maximum sizes of a displayed body.
const (
	shownLines  = 100
	shownBinary = 256
	maxPretty   = 64 << 20 // larger bodies are not formatted
)

// bodyText formats a body: indented JSON, other text unchanged, binary data in hex.
func bodyText(body []byte) string {
	if len(body) == 0 {
		return ""
	}
	more := ""
	if !api.IsText(body) {
		if len(body) > shownBinary {
			more = fmt.Sprintf("  … %s more: --body prints all\n", bytesText(len(body)-shownBinary))
			body = body[:shownBinary]
		}
		return indented(hex.Dump(body)) + more
	}
	if pretty, ok := api.Indent(body, maxPretty); ok {
		body = pretty
	}
	lines := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
	if len(lines) > shownLines {
		more = fmt.Sprintf("  … %s more: --body prints all\n", terminal.Plural(len(lines)-shownLines, "line"))
		lines = lines[:shownLines]
	}
	for i, line := range lines {
		lines[i] = terminal.Cut(harmless(line), 2000)
	}
	return indented(strings.Join(lines, "\n")) + more
}

// harmless removes terminal control characters from a line.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return r
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, s)
}

func indented(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n  ") + "\n"
}

func bytesText(n int) string {
	switch {
	case n < 1<<10:
		return terminal.Plural(n, "byte")
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
