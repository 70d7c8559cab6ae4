package editor

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/reprisemq/reprise/console/internal/show"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

// maxDiffLines is how many lines a page shows of a comparison.
const maxDiffLines = 2000

// diffLine is a line of a comparison. Class is "add", "del", "skip-lines", or "" for
// one that is in both.
type diffLine struct{ Class, Text string }

// diff compares two texts line by line and returns what is different, with up to
// context lines around it, as far as a page has room for it. Nil if nothing is.
func diff(before, after string, context int) []diffLine {
	if before == after {
		return nil
	}
	before, after = before+"\n", after+"\n" // so that all edits are of whole lines
	var lines []diffLine
	add := func(class, text string) {
		for line := range strings.Lines(text) {
			lines = append(lines, diffLine{class, strings.TrimSuffix(line, "\n")})
		}
	}
	at := 0
	for _, e := range udiff.Lines(before, after) {
		add("", before[at:e.Start])
		add("del", before[e.Start:e.End])
		add("add", e.New)
		at = e.End
	}
	add("", before[at:])
	lines = fold(lines, context)
	if more := len(lines) - maxDiffLines; more > 0 {
		lines = append(lines[:maxDiffLines], diffLine{"skip-lines", show.Plural(int64(more), "more line") + " of the comparison"})
	}
	return lines
}

// fold leaves out what is the same and further than context lines from a difference.
func fold(lines []diffLine, context int) []diffLine {
	near := make([]bool, len(lines))
	for i, l := range lines {
		if l.Class != "" {
			for k := max(0, i-context); k < min(len(lines), i+context+1); k++ {
				near[k] = true
			}
		}
	}
	var folded []diffLine
	for i := 0; i < len(lines); {
		if near[i] {
			folded = append(folded, lines[i])
			i++
			continue
		}
		from := i
		for i < len(lines) && !near[i] {
			i++
		}
		folded = append(folded, diffLine{"skip-lines", show.Plural(int64(i-from), "line") + " alike"})
	}
	return folded
}

// EditDiff is what an edit changes.
type EditDiff struct {
	Body, Headers []diffLine
	Same          bool
}

// Compare compares two contents as people read them.
func Compare(before, after failed.Content) EditDiff {
	d := EditDiff{
		Body:    diff(diffText(before.Body), diffText(after.Body), 3),
		Headers: diff(fieldText(before), fieldText(after), 1),
	}
	d.Same = d.Body == nil && d.Headers == nil
	if d.Same && !sameContent(before, after) {
		d.Same = false
		d.Body = []diffLine{{"add", "It differs in what does not show, such as spaces or the type of a header."}}
	}
	return d
}

// diffText is a body in lines: JSON indented, bytes in hexadecimal.
func diffText(body []byte) string {
	if len(body) > maxEdited {
		return fmt.Sprintf("%s, too long to be compared", show.ByteSize(len(body)))
	}
	if indented, ok := api.Indent(body, maxIndented); ok {
		body = indented
	} else if !show.IsText(body) {
		return hexLines(body)
	}
	return show.Visible(string(body))
}

// fieldText is properties and the application's headers in lines.
func fieldText(c failed.Content) string {
	var b strings.Builder
	for _, e := range editFields {
		if v := *e.of(&c.Properties); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", e.label, show.Visible(v))
		}
	}
	own, _ := show.SplitHeaders(c.Headers)
	for _, h := range own {
		fmt.Fprintf(&b, "%s (%s): %s\n", h.Name, h.Kind, strings.ReplaceAll(h.Value, "\n", " "))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func sameContent(a, b failed.Content) bool {
	return bytes.Equal(a.Body, b.Body) && reflect.DeepEqual(a.Properties, b.Properties) &&
		(len(a.Headers) == 0 && len(b.Headers) == 0 || reflect.DeepEqual(a.Headers, b.Headers))
}
