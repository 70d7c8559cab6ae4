package terminal

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"
)

// For any cells, a table has one line per row and no control characters. It fits into the terminal if its columns can be
// truncated enough.
func TestTextTableFitsTerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := NewTable([]Column{{Name: "ID", Right: true}, {Name: "QUEUE", Least: 12}, {Name: "ERROR", Least: 20, Ends: true}})
		rows := rapid.IntRange(0, 5).Draw(t, "rows")
		for range rows {
			table.Add(rapid.StringMatching(`[0-9]{1,6}`).Draw(t, "id"), rapid.String().Draw(t, "queue"), rapid.String().Draw(t, "error"))
		}
		width := rapid.IntRange(42, 200).Draw(t, "width")
		got := table.Text(width)
		lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
		if len(lines) != rows+1 {
			t.Fatalf("got %d lines, want %d:\n%s", len(lines), rows+1, got)
		}
		for _, line := range lines {
			if w := TextWidth(line); w > width {
				t.Fatalf("line has width %d, want at most %d: %q", w, width, line)
			}
			if i := strings.IndexFunc(line, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) }); i >= 0 {
				t.Fatalf("line contains control characters: %q", line)
			}
		}
	})
}

func TestTextTable(t *testing.T) {
	table := NewTable([]Column{{Name: "N", Right: true}, {Name: "FIRST"}, {Name: "ERROR", Least: 8}})
	table.Add("7", "now", "a line\nand \x1b[31manother")
	table.Add("12", "1h ago", "日本語の長い文字列です")
	table = table.Without(func(_ int, c Column) bool { return c.Name == "FIRST" })
	got := table.Text(20)
	want := " N  ERROR\n 7  a line and [31m…\n12  日本語の長い文…\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// Errors of one service often start with the same URL and differ only at the end, so the table cuts them in the middle.
func TestTextTableCutsMiddle(t *testing.T) {
	table := NewTable([]Column{{Name: "N"}, {Name: "ERROR", Least: 10, Ends: true}})
	table.Add("1", "POST http://shop/orders: 503 Service Unavailable: shard 3 is down")
	table.Add("2", "POST http://shop/orders: 404 Not Found: no such customer")
	table.Add("3", "日本語の長い文字列です。日本語の長い文字列です")
	got := table.Text(30)
	want := "N  ERROR\n1  POST htt…e: shard 3 is down\n2  POST htt…: no such customer\n3  日本語の…語の長い文字列です\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTableOmitsZeroColumnsThatDoNotFit(t *testing.T) {
	table := NewTable([]Column{{Name: "ACCOUNT"}, {Name: "IN"}, {Name: "WAITING", Spare: true}, {Name: "REMOVED", Spare: true}})
	table.Add("orders", "0", "7", "0")
	for width, want := range map[int]string{
		0:  "ACCOUNT  IN  WAITING  REMOVED\norders   0   7        0\n",
		29: "ACCOUNT  IN  WAITING  REMOVED\norders   0   7        0\n",
		28: "ACCOUNT  IN  WAITING\norders   0   7\n",
	} {
		got := table.Text(width)
		if got != want {
			t.Errorf("width %d: got\n%s\nwant\n%s", width, got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for want, at := range map[string]time.Time{
		"-": {}, "now": now, "59s ago": now.Add(-59 * time.Second), "1m ago": now.Add(-time.Minute), "47h ago": now.Add(-47*time.Hour - 29*time.Minute),
		"2d ago": now.Add(-48 * time.Hour), "400d ago": now.AddDate(0, 0, -400), "in 5m": now.Add(5 * time.Minute),
		"in 2h": now.Add(2*time.Hour - time.Millisecond), "in 292y": now.AddDate(7000, 0, 0), // the longest Duration
		"3d ago": now.Add(-60 * time.Hour), "2h ago": now.Add(-90 * time.Minute),
	} {
		if got := Ago(at, now); got != want {
			t.Errorf("%v: got %q, want %q", at, got, want)
		}
	}
}

func TestProgressLine(t *testing.T) {
	p := &Progress{what: "sending", width: 80, first: 0}
	for _, c := range []struct {
		done, total int64
		elapsed     time.Duration
		want        string
	}{
		{0, 400, 0, "sending  [..............................]    0%  0 of 400"},
		{100, 400, 2 * time.Second, "sending  [#######.......................]   25%  100 of 400  50/s, 6s left"},
		{400, 400, 8 * time.Second, "sending  [##############################]  100%  400 of 400"},
		{7, 0, time.Second, "sending  7"},
	} {
		if got := p.line(c.done, c.total, c.elapsed); got != c.want {
			t.Errorf("got  %q\nwant %q", got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := &Progress{what: "importing", width: rapid.IntRange(10, 200).Draw(t, "width")}
		total := rapid.Int64Range(0, 1e12).Draw(t, "total")
		line := p.line(rapid.Int64Range(0, total).Draw(t, "done"), total, time.Duration(rapid.Int64Range(1, 1e15).Draw(t, "elapsed")))
		if TextWidth(line) >= p.width {
			t.Fatalf("%q does not fit into %d columns", line, p.width)
		}
	})
}
