package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Position is a position in a file. Lines and columns start at 1.
type Position struct{ Line, Column int }

// Problem is one error in a file.
type Problem struct {
	Position
	Text string // the error and a suggestion
}

// Problems contains all errors of a file, in the order of the file.
type Problems struct {
	Name string
	List []Problem

	excerpts excerpts
}

// Error returns the problems, each with its position and an excerpt of its line.
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
	if x.Line <= len(p.excerpts.source) {
		if hidden, ok := p.excerpts.line(x.Line - 1); ok {
			line, caret := excerpt(p.excerpts.source[x.Line-1], hidden, x.Column)
			fmt.Fprintf(b, "\n%7d | %s\n%7s | %s^", x.Line, line, "", caret)
		}
	}
	if more != "" {
		b.WriteString("\n\n          " + strings.ReplaceAll(more, "\n", "\n          "))
	}
}

// excerptWidth is the maximum length of an excerpt, in characters.
const excerptWidth = 120

// excerpt returns a line with … instead of its hidden parts, and the spaces that align a caret with column.
func excerpt(line string, hidden []span, column int) (shown, blanks string) {
	runes, at := mask([]rune(line), hidden, column-1)
	if at > excerptWidth/2 && len(runes) > excerptWidth {
		cut := min(at-excerptWidth/2, len(runes)-excerptWidth)
		runes, at = runes[cut:], at-cut
	}
	runes = runes[:min(len(runes), excerptWidth)]
	at = min(at, len(runes))
	pad := make([]rune, at)
	for i, r := range runes {
		if r != '\t' && !unicode.IsPrint(r) {
			runes[i] = '·' // prevents control sequences on the terminal
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

// mask replaces each hidden part of a line with …. The result place is the new index of the rune line[at]. Spaces at
// the ends of a hidden part remain visible.
func mask(line []rune, hidden []span, at int) (masked []rune, place int) {
	secret := make([]bool, len(line))
	for _, s := range hidden {
		end := len(line)
		if s.end >= 0 {
			end = min(s.end, end)
		}
		begin := min(s.begin, end)
		for begin < end && unicode.IsSpace(line[begin]) {
			begin++
		}
		for begin < end && unicode.IsSpace(line[end-1]) {
			end--
		}
		for i := begin; i < end; i++ {
			secret[i] = true
		}
	}
	for i, r := range line {
		switch {
		case !secret[i]:
			masked = append(masked, r)
		case i == 0 || !secret[i-1]:
			masked = append(masked, '…')
		}
		if i == at {
			place = len(masked) - 1
		}
	}
	if at >= len(line) {
		place = len(masked)
	}
	return masked, place
}

// sorted returns the problems found so far, sorted by position and without duplicates. An alias can cause a
// duplicate, because it makes the decoder read a position several times.
func (d *decoder) sorted() *Problems {
	list := slices.Clone(d.problems)
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Problems{Name: d.name, List: slices.Compact(list), excerpts: d.excerpts}
}

// Refuse returns problems that were found after the file was parsed. It returns nil if problems is empty.
func (c *Config) Refuse(problems ...Problem) error {
	if len(problems) == 0 {
		return nil
	}
	return (&decoder{name: c.name, excerpts: c.excerpts, problems: problems}).sorted()
}

func splitLines(data []byte) []string {
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data))
	return strings.Split(text, "\n")
}
