package explore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/testkit"
)

// Summary returns a table, in Markdown, with the breaks at which each passage loses or duplicates the message. Passages with
// equal outcomes share a row.
func Summary(passages []*Passage) string {
	var b strings.Builder
	breaks := 0
	b.WriteString("| life | way | lost | duplicated |\n|---|---|---|---|\n")
	for i, p := range passages {
		breaks += len(p.Script) * len(Breakages)
		lost, duplicated := p.when(Lost), p.when(Duplicated)
		if ways := sharing(passages, i, func(q *Passage) bool { return q.when(Lost) == lost && q.when(Duplicated) == duplicated }); ways != "" {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", p.Life.Name, ways, lost, duplicated)
		}
	}
	fmt.Fprintf(&b, "\nThe table covers %d breaks.\n", breaks)
	return b.String()
}

// Details returns a table for each passage. Passages with equal outcomes share a table.
func Details(passages []*Passage) string {
	var b strings.Builder
	for i, p := range passages {
		if ways := sharing(passages, i, func(q *Passage) bool { return q.Table() == p.Table() }); ways != "" {
			fmt.Fprintf(&b, "%s: %s\n\n%s\n", p.Life.Name, ways, p.Table())
		}
	}
	return b.String()
}

// sharing returns the ways of the passages with the life of passage i for which same is true, or "" if an earlier passage
// is among them.
func sharing(passages []*Passage, i int, same func(*Passage) bool) string {
	var names []string
	for j, q := range passages {
		switch {
		case q.Life.Name != passages[i].Life.Name || !same(q):
		case j < i:
			return ""
		case q.Life.Name == Done.Name:
			names = append(names, "any way")
		default:
			names = append(names, q.Way.Name)
		}
	}
	return strings.Join(names, "; ")
}

// Table returns a table with a row for each frame of the script and a column for each of the Breakages.
func (p *Passage) Table() string {
	var b strings.Builder
	b.WriteString("| about to cross |")
	for _, k := range Breakages {
		fmt.Fprintf(&b, " %s |", k.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(Breakages)) + "\n")
	for at, row := range p.Outcomes {
		c := p.Script[at]
		arrow := "►"
		if c.Direction == testkit.ToClient {
			arrow = "◄"
		}
		fmt.Fprintf(&b, "| %s %s %s |", c.Line, arrow, p.step(at))
		for _, o := range row {
			fmt.Fprintf(&b, " %s |", o)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// step describes a frame and its purpose.
func (p *Passage) step(at int) string {
	c := p.Script[at]
	name := "`" + c.Name + "`"
	switch {
	case c.Name == "basic.ack" && c.Line == publishing:
		return name + ", the confirm"
	case c.Name == "basic.deliver" && slices.ContainsFunc(p.Script[:at], delivered):
		return name + ", the retry"
	}
	return name
}

// when returns the breakages and moments that lead to an outcome, on one line.
func (p *Passage) when(o Outcome) string {
	var all []string
	for n, k := range Breakages {
		var spans []string
		for i := 0; i < len(p.Outcomes); i++ {
			if p.Outcomes[i][n] != o {
				continue
			}
			first := i
			for i+1 < len(p.Outcomes) && p.Outcomes[i+1][n] == o {
				i++
			}
			span := p.step(first)
			if i > first {
				span += " … " + p.step(i)
			}
			spans = append(spans, span)
		}
		if spans != nil {
			all = append(all, k.Name+": "+strings.Join(spans, "; "))
		}
	}
	if all == nil {
		return "never"
	}
	return strings.Join(all, "<br>")
}
