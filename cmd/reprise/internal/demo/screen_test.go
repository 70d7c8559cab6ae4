package demo

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/reprisemq/reprise/internal/preset"
)

var update = flag.Bool("update", false, "update the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// attempts are the latest attempts of a run.
var attempts = []attempt{
	{at: 3100 * time.Millisecond, outcome: outcomeDone, event: "delete", about: "Live in Hong Kong 2001 · Deep Purple", number: 2},
	{
		at: 3200 * time.Millisecond, outcome: outcomeRetry, event: "index", about: "Dance Fever (live at Madison Square Garden) · Florence + the Machine", number: 2,
		note: "503 SlowDown: PUT mbid-27dd50ed-1446-4f14-8cda-23fe2f476ccc/index.json: Please reduce your request rate.",
	},
	{
		at: 3300 * time.Millisecond, outcome: outcomeFailed, event: "move", about: "(an invalid body)", number: 1,
		note: `move event: "none" is not the MBID of a release`,
	},
	{at: 3400 * time.Millisecond, outcome: outcomeDone, event: "index", about: "João · Bebel Gilberto", number: 1, note: "debounced: replaced by a later equal event"},
}

// everything returns the output of a run, for a terminal of the given width.
func everything(width int) []line {
	lines := introLines("the embedded broker", 2*time.Second, width)
	for _, a := range attempts {
		lines = append(lines, attemptLine(a, width))
	}
	return append(lines, queueLines(map[string]int{preset.CoverArtIndexQueue: 12, preset.CoverArtRetryQueue: 7, preset.CoverArtFailedQueue: 2})...)
}

func render(lines []line, width int, colour bool) string {
	var out strings.Builder
	for _, l := range lines {
		out.WriteString(l.render(width, colour) + "\n")
	}
	return out.String()
}

func TestTerminalOutput(t *testing.T) {
	golden(t, "terminal-80.txt", render(everything(80), 80, false))
	golden(t, "terminal-colour.txt", strings.ReplaceAll(render(everything(80), 80, true), "\x1b", "␛"))
}

func TestLinesFitTerminal(t *testing.T) {
	for width := 1; width < 200; width++ {
		for _, l := range everything(width) {
			if got := utf8.RuneCountInString(l.render(width, false)); got > width {
				t.Fatalf("width %d: a line has %d characters, want at most %d: %s", width, got, width, l.render(width, false))
			}
		}
	}
}

func TestWrap(t *testing.T) {
	if got := render(wrapped(line{}.add(normal, "head "), normal, "one two three four five six", 27), 27, false); got != "head one two three four\n     five six\n" {
		t.Error(got)
	}
}

func TestPlainOutput(t *testing.T) {
	var out strings.Builder
	v := newScreen(&out)
	v.print(everything(v.width)...)
	golden(t, "plain.txt", out.String())
}
