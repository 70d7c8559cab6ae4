package editor

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/show"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/tablejson"
)

// maxDiffLines is the maximum number of comparison lines on a page.
const maxDiffLines = 2000

// diffLine is a line of a comparison. Class is "add", "del", "skip-lines", or "" for a line in both texts.
type diffLine struct{ Class, Text string }

// diff compares two texts line by line. It returns nil for equal texts, and otherwise the differences, each with up to
// the given number of context lines on either side. The result is truncated after maxDiffLines lines.
func diff(before, after string, context int) []diffLine {
	if before == after {
		return nil
	}
	before, after = before+"\n", after+"\n" // so that all edits affect whole lines
	var lines []diffLine
	at := 1 // next line of before to show
	alike := func(until int) {
		if until > at {
			lines = append(lines, diffLine{"skip-lines", show.Plural(int64(until-at), "unchanged line")})
		}
		at = until
	}
	// ToUnifiedDiff cannot fail, because the edits are from udiff.Lines.
	u, _ := udiff.ToUnifiedDiff("", "", before, udiff.Lines(before, after), context)
	for _, h := range u.Hunks {
		alike(h.FromLine)
		for _, l := range h.Lines {
			lines = append(lines, diffLine{diffClasses[l.Kind], strings.TrimSuffix(l.Content, "\n")})
			if l.Kind != udiff.Insert {
				at++
			}
		}
	}
	alike(strings.Count(before, "\n") + 1)
	if more := len(lines) - maxDiffLines; more > 0 {
		lines = append(lines[:maxDiffLines], diffLine{"skip-lines", show.Plural(int64(more), "more line") + " of the comparison"})
	}
	return lines
}

var diffClasses = map[udiff.OpKind]string{udiff.Insert: "add", udiff.Delete: "del"}

// EditDiff contains the differences between two contents.
type EditDiff struct {
	Body, Headers []diffLine
	Same          bool
}

// Compare compares two contents in the format in which pages show them.
func Compare(before, after failed.Content) EditDiff {
	d := EditDiff{
		Body:    diff(diffText(before.Body), diffText(after.Body), 3),
		Headers: diff(fieldText(before), fieldText(after), 1),
	}
	d.Same = d.Body == nil && d.Headers == nil
	if d.Same && !sameContent(before, after) {
		d.Same = false
		d.Body = []diffLine{{"add", "The difference is invisible here, such as spaces or the type of a header."}}
	}
	return d
}

// diffText formats a body for a comparison: JSON indented, binary data in hexadecimal.
func diffText(body []byte) string {
	if len(body) > maxEdited {
		return fmt.Sprintf("%s, too long to be compared", show.ByteSize(len(body)))
	}
	if indented, ok := api.Indent(body, maxIndented); ok {
		body = indented
	} else if !show.IsText(body) {
		return hexLines(body)
	}
	return brief.Visible(string(body))
}

// fieldText formats the editable properties and the application headers, one per line.
func fieldText(c failed.Content) string {
	var b strings.Builder
	for _, e := range editFields {
		if v := *e.of(&c.Properties); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", e.label, brief.Visible(v))
		}
	}
	own, _ := show.SplitHeaders(c.Headers)
	for _, h := range own {
		fmt.Fprintf(&b, "%s (%s): %s\n", h.Name, h.Kind, strings.ReplaceAll(h.Value, "\n", " "))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func sameContent(a, b failed.Content) bool {
	return bytes.Equal(a.Body, b.Body) && a.Properties == b.Properties &&
		tablejson.Equal(a.Headers, b.Headers)
}
