package graph

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// WriteDOT writes the graph in the DOT language of Graphviz: https://graphviz.org/doc/info/lang.html
func (g *Graph) WriteDOT(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "digraph reprise {")
	fmt.Fprintln(b, `  rankdir=LR; node [shape=box, style="rounded,filled", fontname="monospace"]; edge [fontname="monospace", fontsize=10];`)
	for _, n := range g.Nodes {
		shape := ""
		if n.Kind == Exchange {
			shape = ", shape=hexagon, style=filled"
		}
		fmt.Fprintf(b, "  %s [label=%s, fillcolor=%q%s];\n", dotText(n.ID), dotText(strings.Join(n.lines(), "\n")), fills[n.Kind], shape)
	}
	for _, e := range g.Edges {
		style := ""
		switch e.Way {
		case Returns:
			style = ", style=dashed, constraint=false"
		case Parked:
			style = `, color="#b3261e"`
		}
		fmt.Fprintf(b, "  %s -> %s [label=%s%s];\n", dotText(e.From), dotText(e.To), dotText(strings.Join(e.Labels, "\n")), style)
	}
	fmt.Fprintln(b, "}")
	return b.Flush()
}

// dotText returns a quoted string. It escapes quotes, backslashes and line breaks.
func dotText(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", "", "\x00", "").Replace(s) + `"`
}

// fills contains the colors of nodes on a light background.
var fills = map[Kind]string{
	Exchange: "#eef2f7",
	Work:     "#dcefe3",
	Wait:     "#fdf1cf",
	Failed:   "#fbe0dd",
	Other:    "#ffffff",
}

// lines returns the lines of the label of a node.
func (n Node) lines() []string {
	lines := []string{n.Name}
	if n.Note != "" {
		lines = append(lines, n.Note)
	}
	if n.Count != nil {
		text := fmt.Sprintf("%d ready", n.Count.Ready)
		if n.Count.Unacked > 0 {
			text += fmt.Sprintf(", %d unacked", n.Count.Unacked)
		}
		lines = append(lines, text)
	}
	return lines
}
