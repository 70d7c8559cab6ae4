package failedcmd

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/cmd/reprise/internal/content"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/tablejson"
)

// bodyMark separates headers and body.
const bodyMark = "-------- body below this line --------"

// editFile formats a message for an editor.
func editFile(m api.Summary, c api.Content) string {
	text := fmt.Sprintf(`# Message %d, failed in %s: %s
#
# Headers: "name: text", or "name := JSON" for other types: 5, {"int32": 5}, true, ["a"].
# Lines that begin with # are ignored. Headers of earlier attempts are not shown and not sent.
`, m.ID, terminal.OneLine(string(m.Queue)), terminal.Cut(terminal.OneLine(m.Error), 200))
	text += editText(c)
	if !strings.HasSuffix(text, "\n") {
		text += "\n" // editors add a line break; readEdit removes it
	}
	return text
}

// editText formats headers and body.
func editText(c api.Content) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		if !content.Bookkeeping(name) {
			b.WriteString(headerLine(name, c.Headers[name]) + "\n")
		}
	}
	return b.String() + bodyMark + "\n" + string(c.Body)
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_./-]+$`)

// headerLine formats a header as a line.
func headerLine(name string, value any) string {
	if !plainName.MatchString(name) {
		name = strconv.Quote(name)
	}
	if s, ok := value.(string); ok && api.IsText([]byte(s)) && !strings.ContainsAny(s, "\r\n") && strings.TrimSpace(s) == s && s != "" {
		return name + ": " + s
	}
	if n, ok := value.(int64); ok {
		return fmt.Sprintf("%s := %d", name, n)
	}
	text, err := content.ValueJSON(value)
	if err != nil {
		return "# cannot show " + name + ": " + terminal.OneLine(err.Error())
	}
	return name + " := " + text
}

// readEdit parses a file that editFile created and the user changed.
func readEdit(text string, before api.Content) (api.Content, error) {
	after := before
	head, body, found := strings.Cut(text, bodyMark+"\n")
	if !found {
		head, body, found = strings.Cut(text, bodyMark+"\r\n")
	}
	if !found {
		return after, fmt.Errorf("line %s not found (it separates headers and body)", brief.Quoted(bodyMark))
	}
	if len(before.Body) == 0 || before.Body[len(before.Body)-1] != '\n' {
		body = strings.TrimSuffix(body, "\n")
	}
	after.Body = []byte(body)
	after.Headers = api.Headers{}
	for name, value := range before.Headers {
		if content.Bookkeeping(name) {
			after.Headers[name] = value
		}
	}
	for i, line := range strings.Split(head, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, err := readHeader(line)
		if err != nil {
			return after, fmt.Errorf("line %d: %w", i+1, err)
		}
		if _, twice := after.Headers[name]; twice {
			return after, fmt.Errorf("line %d: header %s must occur once (attempts may have added it)", i+1, brief.Quoted(name))
		}
		after.Headers[name] = value
	}
	return after, nil
}

var headerForm = regexp.MustCompile(`^\s*("(?:[^"\\]|\\.)*"|[^\s":=]+)\s*(:=|:)\s?(.*)$`)

// readHeader parses a line in the format of headerLine.
func readHeader(line string) (string, any, error) {
	m := headerForm.FindStringSubmatch(line)
	if m == nil {
		return "", nil, fmt.Errorf("%s is not a header (write name: text, or name := JSON)", brief.Quoted(line))
	}
	name := m[1]
	if strings.HasPrefix(name, `"`) {
		var err error
		if name, err = strconv.Unquote(name); err != nil {
			return "", nil, fmt.Errorf("%.60q is not a name of a header (quote it as in Go)", m[1])
		}
	}
	if m[2] == ":" {
		return name, strings.TrimRight(m[3], " \t"), nil
	}
	value := strings.TrimSpace(m[3])
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return name, n, nil
	}
	if !json.Valid([]byte(value)) {
		return "", nil, fmt.Errorf("%s := %.60s is not JSON (write name: text for a text)", name, value)
	}
	t, err := tablejson.Decode(`{"v":` + value + `}`)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", name, err)
	}
	return name, t["v"], nil
}
