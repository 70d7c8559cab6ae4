package report

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Write writes the table in Markdown, with aligned columns.
func (t *Table) Write(w io.Writer) error {
	rows := [][]string{t.header()}
	for _, c := range t.Contenders {
		rows = append(rows, t.row(c))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n### %s\n\n%s\n", t.Name, t.Text)
	if t.Target != "" {
		fmt.Fprintf(&b, "Target: %s\n", t.Target)
	}
	b.WriteByte('\n')
	align(&b, rows)
	for _, note := range t.Notes {
		fmt.Fprintf(&b, "\n- %s\n", note)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Table) header() []string {
	row := []string{cmp.Or(t.Subject, "broker"), "rounds"}
	for _, c := range t.Columns {
		row = append(row, c.Title)
		if c.Ratio {
			row = append(row, "spread", cmp.Or(t.Base, "× RabbitMQ"))
		}
		if c.Share {
			row = append(row, "of the limit")
		}
	}
	return row
}

func (t *Table) row(c *Contender) []string {
	row := []string{c.Name, strconv.Itoa(len(c.Rounds))}
	if c.Failed != "" {
		row[1] += " (failed)"
	}
	for _, column := range t.Columns {
		v, ok := c.Median[column.Metric]
		row = append(row, cell(ok, "%s", number(v, column.Digits)))
		if column.Ratio {
			row = append(row, cell(ok && len(c.Rounds) > 1, "%.0f%%", 100*c.spread(column.Metric)))
			ratio, known := t.ratio(c, c.Against, column.Metric)
			row = append(row, cell(known, "%.2f", ratio))
		}
		if column.Share {
			share, known := t.ratio(c, c.Limit, column.Metric)
			row = append(row, cell(known, "%.0f%%", 100*share))
		}
	}
	return row
}

func cell(known bool, format string, v any) string {
	if !known {
		return "–"
	}
	return fmt.Sprintf(format, v)
}

// number formats a number with thousands separators.
func number(v float64, digits int) string {
	s := strconv.FormatFloat(v, 'f', digits, 64)
	whole, rest, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if rest != "" {
		rest = "." + rest
	}
	return whole + rest
}

// align writes rows with aligned columns. The first row is the header. All columns except the first contain numbers.
func align(b *strings.Builder, rows [][]string) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, s := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(s))
		}
	}
	for n, row := range rows {
		for i, s := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(s))
			if i == 0 {
				fmt.Fprintf(b, "| %s%s |", s, pad)
			} else {
				fmt.Fprintf(b, " %s%s |", pad, s)
			}
		}
		b.WriteByte('\n')
		if n > 0 {
			continue
		}
		for i, width := range widths {
			if i == 0 {
				fmt.Fprintf(b, "|%s|", strings.Repeat("-", width+2))
			} else {
				fmt.Fprintf(b, "%s:|", strings.Repeat("-", width+1))
			}
		}
		b.WriteByte('\n')
	}
}
