package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Position is a position in a file. Lines and columns start at 1.
type Position struct {
	File         string
	Line, Column int
}

// from describes p for a problem at another position.
func (p Position) from(other Position) string {
	if p.File == other.File {
		return fmt.Sprintf("on line %d", p.Line)
	}
	return fmt.Sprintf("in %s on line %d", p.File, p.Line)
}

// Problem is one error in a file.
type Problem struct {
	Position
	Text string // the error and a suggestion
}

// Problems contains all errors of the files, in the order of the files.
type Problems struct {
	List []Problem

	files []file
}

// report collects the problems of the files of a configuration.
type report struct {
	files    []file
	revealed [][2]string // contents of references, with their references
	problems []Problem
}

// file is a file in excerpts.
type file struct {
	name string
	excerpts
}

// indexOf returns the index of a file.
func indexOf(files []file, name string) int {
	return slices.IndexFunc(files, func(f file) bool { return f.name == name })
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
	fmt.Fprintf(b, "%s:%d:%d: %s", x.File, x.Line, x.Column, text)
	if e := p.files[indexOf(p.files, x.File)]; x.Line <= len(e.source) {
		if hidden, ok := e.line(x.Line - 1); ok {
			line, caret := excerpt(e.source[x.Line-1], hidden, x.Column)
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
func (r *report) sorted() *Problems {
	list := slices.Clone(r.problems)
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(indexOf(r.files, a.File), indexOf(r.files, b.File)), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Problems{List: slices.Compact(list), files: r.files}
}

// Name returns the names of the files, for output.
func (c *Config) Name() string {
	var names []string
	for _, f := range c.report.files {
		names = append(names, f.name)
	}
	return strings.Join(names, ", ")
}

// Refuse returns problems that were found after the file was parsed. It returns nil if problems is empty.
func (c *Config) Refuse(problems ...Problem) error {
	if len(problems) == 0 {
		return nil
	}
	r := &report{files: c.report.files}
	for _, p := range problems {
		if p.File == "" { // of a default
			p.Position = Position{r.files[0].name, 1, 1}
		}
		r.problems = append(r.problems, p)
	}
	return r.sorted()
}

func splitLines(data []byte) []string {
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data))
	return strings.Split(text, "\n")
}
