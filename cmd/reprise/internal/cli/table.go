package cli

import (
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// textTable is lines of texts in columns, for people. Numbers stand at the right of
// their column. What is wider than the terminal is cut in the columns that may
// shrink, the widest first; where that is not enough, columns that say nothing are
// left out.
type textTable struct {
	head  []string
	right []bool // columns of numbers
	least []int  // to what width a column may be cut; 0: it is never
	ends  []bool // columns of which both ends are kept when they are cut
	spare []bool // columns that are left out if all is 0 and a line would not fit
	rows  [][]string

	hidden []bool
}

// column describes one: a name, and how it is set.
type column struct {
	name  string
	right bool
	least int
	ends  bool
	spare bool
}

func newTable(columns ...column) *textTable {
	t := &textTable{}
	for _, c := range columns {
		t.addColumn(c)
	}
	return t
}

func (t *textTable) addColumn(c column) {
	t.head, t.right, t.least = append(t.head, c.name), append(t.right, c.right), append(t.least, c.least)
	t.ends, t.spare = append(t.ends, c.ends), append(t.spare, c.spare)
}

// add adds a line. Control characters and line breaks become blanks: the texts may
// be anybody's, and a terminal obeys them.
func (t *textTable) add(cells ...string) {
	row := make([]string, len(t.head))
	for i := range row {
		row[i] = oneLiner(cells[i])
	}
	t.rows = append(t.rows, row)
}

// hide leaves a column out.
func (t *textTable) hide(name string) {
	t.hidden = make([]bool, len(t.head))
	for i, h := range t.head {
		t.hidden[i] = h == name
	}
}

// shown are the columns that are not hidden.
func (t *textTable) shown() *textTable {
	if t.hidden == nil {
		return t
	}
	s := &textTable{rows: make([][]string, len(t.rows))}
	for i, name := range t.head {
		if t.hidden[i] {
			continue
		}
		s.addColumn(column{name: name, right: t.right[i], least: t.least[i], ends: t.ends[i], spare: t.spare[i]})
		for j, row := range t.rows {
			s.rows[j] = append(s.rows[j], row[i])
		}
	}
	return s
}

// columnGap is between columns.
const columnGap = 2

// write writes the table at most width wide; 0 is as wide as it takes.
func (t *textTable) write(w io.Writer, width int) error {
	t = t.shown()
	widths := t.widths()
	if width > 0 && !t.shrink(widths, width) {
		t = t.withoutSpare()
		widths = t.widths()
		t.shrink(widths, width)
	}
	var b strings.Builder
	for _, row := range append([][]string{t.head}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			if t.ends[i] {
				cell = cutMiddle(cell, widths[i])
			} else {
				cell = cut(cell, widths[i])
			}
			pad := strings.Repeat(" ", widths[i]-textWidth(cell))
			if t.right[i] {
				cell = pad + cell
			} else {
				cell += pad
			}
			if i > 0 {
				line.WriteString(strings.Repeat(" ", columnGap))
			}
			line.WriteString(cell)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// widths are those that the columns would have.
func (t *textTable) widths() []int {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], textWidth(cell))
		}
	}
	return widths
}

// withoutSpare is the table without the spare columns in which all is 0.
func (t *textTable) withoutSpare() *textTable {
	without := *t
	without.hidden = make([]bool, len(t.head))
	for i, spare := range t.spare {
		without.hidden[i] = spare && !slices.ContainsFunc(t.rows, func(row []string) bool { return row[i] != "0" })
	}
	return without.shown()
}

// shrink makes columns narrower until a line fits, or nothing can be cut any more. It
// says whether a line fits.
func (t *textTable) shrink(widths []int, width int) bool {
	for {
		sum, widest := columnGap*(len(widths)-1), -1
		for i, w := range widths {
			sum += w
			if t.least[i] > 0 && w > t.least[i] && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if sum <= width || widest < 0 {
			return sum <= width
		}
		widths[widest]--
	}
}

// tableWidth is how wide a line for people may be: as the terminal is, or as COLUMNS
// says where there is none; 0 is without a limit.
func tableWidth(streams IO) int {
	if f, ok := streams.Stdout.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return max(width, 40)
		}
	}
	if text, ok := streams.Lookup("COLUMNS"); ok {
		if width, err := strconv.Atoi(text); err == nil && width > 0 {
			return max(width, 40)
		}
	}
	return 0
}

// widthOr80 is tableWidth with a limit in any case.
func widthOr80(streams IO) int {
	if width := tableWidth(streams); width > 0 {
		return width
	}
	return 80
}

// cut shortens a text to a width, the last of it being an ellipsis then.
func cut(s string, width int) string {
	if textWidth(s) <= width {
		return s
	}
	used, end := 0, 0
	for i, r := range s {
		if used+runeWidth(r) > width-1 {
			end = i
			break
		}
		used += runeWidth(r)
	}
	return strings.TrimRight(s[:end], " ") + "…"
}

// cutMiddle shortens a text to a width in its middle: an error begins with what was
// done, and ends with why it could not be.
func cutMiddle(s string, width int) string {
	if textWidth(s) <= width {
		return s
	}
	head, rest := cut(s, max(width/3, 1)), s
	for textWidth(head)+textWidth(rest) > width {
		_, n := utf8.DecodeRuneInString(rest)
		rest = rest[n:]
	}
	return head + strings.TrimLeft(rest, " ")
}

// oneLiner makes any text one that a terminal shows in a line and does not obey.
func oneLiner(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		if unicode.Is(unicode.Cf, r) { // what turns the direction of a line around, and the like
			return -1
		}
		return r
	}, s)
	return strings.Join(strings.Fields(s), " ")
}

func textWidth(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// runeWidth is how many columns a terminal takes for a letter: those of East Asia
// and pictures take two. https://www.unicode.org/reports/tr11/
func runeWidth(r rune) int {
	switch {
	case unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Me, r):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3, r >= 0xf900 && r <= 0xfaff,
		r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6, r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}
