package graph

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// WriteMermaid writes the graph as a Mermaid flowchart, which many Markdown viewers support:
// https://mermaid.js.org/syntax/flowchart.html
func (g *Graph) WriteMermaid(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "flowchart LR")
	names := map[string]string{} // Mermaid restricts the characters of IDs
	for i, n := range g.Nodes {
		names[n.ID] = fmt.Sprintf("n%d", i)
		open, end := "[", "]"
		if n.Kind == Exchange {
			open, end = "{{", "}}"
		}
		fmt.Fprintf(b, "  n%d%s\"%s\"%s:::%s\n", i, open, mermaidText(n.lines()), end, n.Kind)
	}
	for _, e := range g.Edges {
		arrow := "-->"
		if e.Way == Returns {
			arrow = "-.->"
		}
		label := ""
		if len(e.Labels) > 0 {
			label = `|"` + mermaidText(e.Labels) + `"|`
		}
		fmt.Fprintf(b, "  %s %s%s %s\n", names[e.From], arrow, label, names[e.To])
	}
	for _, k := range []Kind{Exchange, Work, Wait, Failed, Other} {
		fmt.Fprintf(b, "  classDef %s fill:%s,stroke:%s,color:#1b1f24\n", k, fills[k], "#57606a")
	}
	return b.Flush()
}

// mermaidText escapes lines with entities, which are the only escapes in Mermaid.
func mermaidText(lines []string) string {
	var b strings.Builder
	for i, line := range lines {
		if i > 0 {
			b.WriteString("<br>")
		}
		for _, r := range line {
			if r < ' ' || strings.ContainsRune("\"#&<>;`|[]{}()\\", r) {
				fmt.Fprintf(&b, "#%d;", r)
				continue
			}
			b.WriteRune(r)
		}
	}
	return b.String()
}
