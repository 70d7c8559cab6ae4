package cause

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"mime"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// OfBody returns the cause of an unsuccessful response, in one line, and the body as text for people. For JSON, the cause
// is the message; for HTML and XML, the text of the page; for other text, the error of a stack trace or the first line.
func OfBody(contentType string, body []byte) (cause, text string) {
	kind, _, _ := mime.ParseMediaType(contentType)
	text = strings.TrimSpace(string(body))
	if kind == "text/html" || strings.HasSuffix(kind, "xml") || kind == "" && strings.HasPrefix(text, "<") {
		text = pageText(body)
		if c := traced(split(text)); c != "" {
			return c, text
		}
		return short(text), text
	}
	if m := message(text); m != "" {
		return short(m), text
	}
	if c := traced(split(text)); c != "" {
		return c, text
	}
	first, _, _ := strings.Cut(text, "\n")
	if strings.HasPrefix(first, "{") || strings.HasPrefix(first, "[") { // JSON that was cut, or has no message
		first = text
	}
	return short(first), text
}

// orMessage returns the message of a JSON object, as in a line of a structured log, and otherwise the text.
func orMessage(text string) string {
	if m := message(text); m != "" {
		return m
	}
	return text
}

// message returns the message of an error in JSON, or "". Names and nesting are those of common frameworks and of RFC 9457.
func message(text string) string {
	if !strings.HasPrefix(text, "{") && !strings.HasPrefix(text, "[") && !strings.HasPrefix(text, `"`) {
		return ""
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		return ""
	}
	return messageOf(v, 0)
}

const maxNesting = 5

// details are names of fields, lower case, in order of preference.
var details = []string{
	"detail", "message", "msg", "error_description", "errormessage", "error_message", "description", "reason", "errors", "error", "err", "exception", "fault", "faultstring",
	"failure", "problem", "response", "result", "data",
}

func messageOf(v any, depth int) string {
	if depth > maxNesting {
		return ""
	}
	switch v := v.(type) {
	case string:
		return orMessage(strings.TrimSpace(v)) // some services pass the body of another one on
	case []any:
		for _, x := range v {
			if m := messageOf(x, depth+1); m != "" {
				return m
			}
		}
	case map[string]any:
		fields := make(map[string]any, len(v))
		for name, x := range v {
			fields[strings.ToLower(name)] = x
		}
		detail := first(fields, details, depth)
		if detail == "" {
			return cmp.Or(first(fields, []string{"title"}, depth), invalidField(fields["errors"], depth))
		}
		if title, ok := fields["title"].(string); ok && title != "" && !strings.Contains(detail, title) {
			return title + ": " + detail
		}
		if label, ok := fields["error"].(string); ok && label != "" && !strings.Contains(detail, label) {
			return detail + ": " + label // log lines: the message, then the error
		}
		return detail
	}
	return ""
}

// invalidField returns the first error of a form, whose names are those of the fields of the form.
func invalidField(errors any, depth int) string {
	form, _ := errors.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(form)) {
		if m := messageOf(form[name], depth+1); m != "" {
			return name + ": " + m
		}
	}
	return ""
}

func first(fields map[string]any, names []string, depth int) string {
	for _, name := range names {
		if m := messageOf(fields[name], depth+1); m != "" {
			return m
		}
	}
	return ""
}

// pageText returns the visible text of an HTML page, or its title if there is none.
func pageText(page []byte) string {
	var text, title strings.Builder
	hidden, inTitle := 0, false
	for z := html.NewTokenizer(bytes.NewReader(page)); ; {
		switch z.Next() {
		case html.ErrorToken:
			if visible := tidy(text.String()); visible != "" {
				return visible
			}
			return tidy(title.String())
		case html.TextToken:
			if inTitle {
				title.Write(z.Text())
			} else if hidden == 0 {
				text.Write(z.Text())
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			name, _ := z.TagName()
			switch a := atom.Lookup(name); a {
			case atom.Title:
				inTitle = true
			case atom.Script, atom.Style:
				hidden++
			case atom.A, atom.B, atom.I, atom.Em, atom.Strong, atom.Code, atom.Span, atom.Small, atom.U:
			default:
				text.WriteByte('\n')
			}
		case html.EndTagToken:
			name, _ := z.TagName()
			switch atom.Lookup(name) {
			case atom.Title:
				inTitle = false
			case atom.Script, atom.Style:
				hidden = max(hidden-1, 0)
			case atom.P, atom.Div, atom.Li, atom.Tr, atom.Pre, atom.H1, atom.H2, atom.H3, atom.H4:
				text.WriteByte('\n')
			}
		}
	}
}

// tidy removes empty lines and the space at the end of lines. The space at the beginning marks the frames of a trace.
func tidy(text string) string {
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(text, "\u00a0", " ")) {
		if line = strings.TrimRight(line, " \t\r\n"); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}
