package cli

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

// column describes a column of a table.
type column struct {
	name  string
	right bool // number, aligned to the right
	least int  // minimum width when truncated; 0: never truncated
	ends  bool // truncate in the middle
	spare bool // omit if all cells are 0 and a line does not fit
}

// textTable formats text in columns. If a table is wider than the terminal, the widest columns are truncated. If that
// is not sufficient, spare columns that contain only zeros are omitted.
type textTable struct {
	columns []column
	rows    [][]string
}

func newTable(columns ...column) *textTable { return &textTable{columns: columns} }

// add adds a line. It replaces control characters and line breaks with spaces, because the text may be untrusted.
func (t *textTable) add(cells ...string) {
	row := make([]string, len(t.columns))
	for i := range row {
		row[i] = terminal.OneLine(cells[i])
	}
	t.rows = append(t.rows, row)
}

// without returns the table without the columns for which drop returns true.
func (t *textTable) without(drop func(i int, c column) bool) *textTable {
	kept := &textTable{rows: make([][]string, len(t.rows))}
	for i, c := range t.columns {
		if drop(i, c) {
			continue
		}
		kept.columns = append(kept.columns, c)
		for j, row := range t.rows {
			kept.rows[j] = append(kept.rows[j], row[i])
		}
	}
	return kept
}

// write writes the table. Lines have at most the given width; 0 means no limit.
func (t *textTable) write(w io.Writer, width int) error {
	widths, fits := t.widths(width)
	if !fits {
		t = t.without(func(i int, c column) bool {
			return c.spare && !slices.ContainsFunc(t.rows, func(row []string) bool { return row[i] != "0" })
		})
		widths, _ = t.widths(width)
	}
	head := make([]string, len(t.columns))
	for i, c := range t.columns {
		head[i] = c.name
	}
	var b strings.Builder
	for _, row := range append([][]string{head}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			c := t.columns[i]
			if c.ends {
				cell = cutMiddle(cell, widths[i])
			} else {
				cell = terminal.Cut(cell, widths[i])
			}
			pad := strings.Repeat(" ", widths[i]-terminal.TextWidth(cell))
			if c.right {
				cell, pad = pad+cell, ""
			}
			line.WriteString(cell + pad + columnGap)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const columnGap = "  "

// widths returns the widths of the columns after truncation, and whether the lines fit.
func (t *textTable) widths(width int) (widths []int, fits bool) {
	widths = make([]int, len(t.columns))
	sum := len(columnGap) * (len(widths) - 1)
	for i, c := range t.columns {
		widths[i] = terminal.TextWidth(c.name)
		for _, row := range t.rows {
			widths[i] = max(widths[i], terminal.TextWidth(row[i]))
		}
		sum += widths[i]
	}
	for ; width > 0 && sum > width; sum-- {
		widest := -1
		for i, c := range t.columns {
			if c.least > 0 && widths[i] > c.least && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return widths, false
		}
		widths[widest]--
	}
	return widths, true
}

// cutMiddle shortens a text in the middle, because an error begins with the action and ends with the cause.
func cutMiddle(s string, width int) string {
	if terminal.TextWidth(s) <= width {
		return s
	}
	head, rest := terminal.Cut(s, max(width/3, 1)), s
	for terminal.TextWidth(head)+terminal.TextWidth(rest) > width {
		_, n := utf8.DecodeRuneInString(rest)
		rest = rest[n:]
	}
	return head + strings.TrimLeft(rest, " ")
}
