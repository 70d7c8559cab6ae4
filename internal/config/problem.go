package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Position is a place in a file, counted from 1.
type Position struct{ Line, Column int }

// Problem is one mistake in a file.
type Problem struct {
	Position
	Text string // what is wrong, and what to write instead
}

// Problems are all mistakes of a file, in its order.
type Problems struct {
	Name   string
	List   []Problem
	source []string
}

// Error shows each problem with the line it is on.
func (p *Problems) Error() string {
	var b strings.Builder
	for i, x := range p.List {
		if i > 0 {
			b.WriteByte('\n')
		}
		p.write(&b, x)
	}
	return b.String()
}

// write appends one problem:
//
//	reprise.yaml:7:5: unknown key "concurency" in a worker: did you mean concurrency?
//	    7 |     concurency: 4
//	      |     ^
func (p *Problems) write(b *strings.Builder, x Problem) {
	text, more, _ := strings.Cut(x.Text, "\n")
	fmt.Fprintf(b, "%s:%d:%d: %s", p.Name, x.Line, x.Column, text)
	if x.Line <= len(p.source) {
		line, caret := excerpt(p.source[x.Line-1], x.Column)
		fmt.Fprintf(b, "\n%7d | %s\n%7s | %s^", x.Line, line, "", caret)
	}
	if more != "" {
		b.WriteString("\n\n          " + strings.ReplaceAll(more, "\n", "\n          "))
	}
}

// excerptWidth is how much of a long line is shown.
const excerptWidth = 120

// secret is the password of a URL. Excerpts end up in logs.
var secret = regexp.MustCompile(`(://[^:/@\s]*:)([^@\s]+)@`)

// excerpt returns a line as it can be shown, and the blanks in front of column.
func excerpt(line string, column int) (shown, blanks string) {
	line = secret.ReplaceAllStringFunc(line, func(s string) string {
		m := secret.FindStringSubmatch(s)
		if strings.HasPrefix(m[2], "${") {
			return s
		}
		return m[1] + strings.Repeat("*", len([]rune(m[2]))) + "@"
	})
	runes := []rune(line)
	at := min(max(column-1, 0), len(runes))
	if at > excerptWidth/2 && len(runes) > excerptWidth {
		cut := min(at-excerptWidth/2, len(runes)-excerptWidth)
		runes, at = runes[cut:], at-cut
	}
	runes = runes[:min(len(runes), excerptWidth)]
	at = min(at, len(runes))
	pad := make([]rune, at)
	for i, r := range runes {
		if r != '\t' && !unicode.IsPrint(r) {
			runes[i] = '·' // no control sequences on somebody's terminal
		}
		if i < at {
			pad[i] = ' '
			if r == '\t' {
				pad[i] = '\t'
			}
		}
	}
	return string(runes), string(pad)
}

// sorted returns the problems found so far: each once, although an alias makes
// one place be read several times.
func (d *decoder) sorted() *Problems {
	list := slices.Clone(d.problems)
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Problems{Name: d.name, List: slices.Compact(list), source: d.source}
}

// Refuse returns problems that only came to light after the file was read, nil
// if there are none.
func (c *Config) Refuse(problems ...Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return (&decoder{name: c.name, source: c.source, problems: problems}).sorted()
}

func splitLines(data []byte) []string {
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data))
	return strings.Split(text, "\n")
}
