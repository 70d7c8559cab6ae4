package explore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/internal/testkit"
)

// Tables returns a summary of passages and a table for each passage, in Markdown. Passages with equal outcomes share a table.
func Tables(passages []*Passage) string {
	var b strings.Builder
	breaks := 0
	b.WriteString("| life | way | lost | duplicated |\n|---|---|---|---|\n")
	for _, p := range passages {
		breaks += len(p.Script) * len(Breakages)
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", p.Life.Name, p.wayName(), p.when(Lost), p.when(Duplicated))
	}
	fmt.Fprintf(&b, "\nThe summary covers %d breaks. The tables below list each break:\n", breaks)
	for i, p := range passages {
		same := func(q *Passage) bool { return q.Life.Name == p.Life.Name && q.Table() == p.Table() }
		if slices.ContainsFunc(passages[:i], same) {
			continue
		}
		var names []string
		for _, q := range passages {
			if same(q) {
				names = append(names, q.wayName())
			}
		}
		fmt.Fprintf(&b, "\n### %s: %s\n\n%s", p.Life.Name, strings.Join(names, "; "), p.Table())
	}
	return b.String()
}

func (p *Passage) wayName() string {
	if p.Life.Name == Done.Name {
		return "any way"
	}
	return p.Way.Name
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
