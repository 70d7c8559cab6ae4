// Package content formats the content of messages for a terminal.
package content

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/tablejson"
	"github.com/reprisemq/reprise/topology"
)

// Properties formats the properties that are set.
func Properties(shown api.Properties) string {
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

// Headers formats the headers. Instead of bookkeeping headers, it shows their number, because the text above
// contains their information.
func Headers(headers topology.Table, width int) string {
	var b strings.Builder
	left := 0
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if Bookkeeping(name) {
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

// headerText formats the value of a header. Arrays and tables are JSON. Bytes that are text, such as a checkpoint, are text.
func headerText(value any) string {
	switch x := value.(type) {
	case string:
		return x
	case []byte:
		if api.IsText(x) {
			return string(x)
		}
	}
	if text, ok := tablejson.Text(value); ok {
		return text
	}
	text, err := ValueJSON(value)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	return text
}

// ValueJSON formats a value of a header as JSON with types.
func ValueJSON(value any) (string, error) {
	text, err := tablejson.EncodeList([]any{value})
	return strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), err
}

// Bookkeeping reports whether attempts, replays or the broker add headers with this name. A replay does not send such
// headers.
func Bookkeeping(name string) bool {
	return (topology.Trail{}).Owns(name) || name == topology.HeaderReplay || amqpvalue.IsBrokerHeader(name)
}

// Maximum sizes of a displayed body.
const (
	shownLines  = 100
	shownBinary = 256
	maxPretty   = 64 << 20 // larger bodies are not formatted
)

// Body formats a body: indented JSON, other text unchanged, binary data in hex. Instead of encrypted data, it shows the name of
// the key.
func Body(headers topology.Table, body []byte) string {
	if len(body) == 0 {
		return ""
	}
	more := ""
	if key, encrypted := failed.EncryptionKey(headers); encrypted {
		more = "  encrypted with the key " + terminal.OneLine(key) + "\n"
		if !api.IsText(body) {
			return more
		}
	}
	if !api.IsText(body) {
		if len(body) > shownBinary {
			more += fmt.Sprintf("  … %s more: --body prints all\n", Bytes(len(body)-shownBinary))
			body = body[:shownBinary]
		}
		return indented(hex.Dump(body)) + more
	}
	if pretty, ok := api.Indent(body, maxPretty); ok {
		body = pretty
	}
	lines := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
	if len(lines) > shownLines {
		more += fmt.Sprintf("  … %s more: --body prints all\n", terminal.Plural(len(lines)-shownLines, "line"))
		lines = lines[:shownLines]
	}
	for i, line := range lines {
		lines[i] = terminal.Cut(Harmless(line), 2000)
	}
	return indented(strings.Join(lines, "\n")) + more
}

// Harmless removes terminal control characters from a line.
func Harmless(s string) string {
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

// Bytes formats a number of bytes.
func Bytes(n int) string {
	switch {
	case n < 1<<10:
		return terminal.Plural(n, "byte")
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
