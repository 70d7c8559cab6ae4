package terminal

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Column describes a column of a table.
type Column struct {
	Name  string
	Right bool // number, aligned to the right
	Least int  // minimum width when truncated; 0: never truncated
	Ends  bool // truncate in the middle
	Spare bool // omit if all cells are 0 and a line does not fit
}

// Table formats text in columns. If a table is wider than the terminal, the widest columns are truncated. If that
// is not sufficient, spare columns that contain only zeros are omitted.
type Table struct {
	columns []Column
	Rows    [][]string
}

// NewTable returns a table without rows.
func NewTable(columns []Column) *Table { return &Table{columns: columns} }

// Add adds a line. It replaces control characters and line breaks with spaces, because the text may be untrusted.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(t.columns))
	for i := range row {
		row[i] = OneLine(cells[i])
	}
	t.Rows = append(t.Rows, row)
}

// Without returns the table without the columns for which drop returns true.
func (t *Table) Without(drop func(i int, c Column) bool) *Table {
	kept := &Table{Rows: make([][]string, len(t.Rows))}
	for i, c := range t.columns {
		if drop(i, c) {
			continue
		}
		kept.columns = append(kept.columns, c)
		for j, row := range t.Rows {
			kept.Rows[j] = append(kept.Rows[j], row[i])
		}
	}
	return kept
}

// Text returns the table. Lines have at most the given width; 0 means no limit.
func (t *Table) Text(width int) string {
	widths, fits := t.widths(width)
	if !fits {
		t = t.Without(func(i int, c Column) bool {
			return c.Spare && !slices.ContainsFunc(t.Rows, func(row []string) bool { return row[i] != "0" })
		})
		widths, _ = t.widths(width)
	}
	head := make([]string, len(t.columns))
	for i, c := range t.columns {
		head[i] = c.Name
	}
	var b strings.Builder
	for _, row := range append([][]string{head}, t.Rows...) {
		var line strings.Builder
		for i, cell := range row {
			c := t.columns[i]
			if c.Ends {
				cell = cutMiddle(cell, widths[i])
			} else {
				cell = Cut(cell, widths[i])
			}
			pad := strings.Repeat(" ", widths[i]-TextWidth(cell))
			if c.Right {
				cell, pad = pad+cell, ""
			}
			line.WriteString(cell + pad + columnGap)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

const columnGap = "  "

// widths returns the widths of the columns after truncation, and whether the lines fit.
func (t *Table) widths(width int) (widths []int, fits bool) {
	widths = make([]int, len(t.columns))
	sum := len(columnGap) * (len(widths) - 1)
	for i, c := range t.columns {
		widths[i] = TextWidth(c.Name)
		for _, row := range t.Rows {
			widths[i] = max(widths[i], TextWidth(row[i]))
		}
		sum += widths[i]
	}
	for ; width > 0 && sum > width; sum-- {
		widest := -1
		for i, c := range t.columns {
			if c.Least > 0 && widths[i] > c.Least && (widest < 0 || widths[i] > widths[widest]) {
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
	if TextWidth(s) <= width {
		return s
	}
	head, rest := Cut(s, max(width/3, 1)), s
	for TextWidth(head)+TextWidth(rest) > width {
		_, n := utf8.DecodeRuneInString(rest)
		rest = rest[n:]
	}
	return head + strings.TrimLeft(rest, " ")
}
