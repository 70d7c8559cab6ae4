package demo

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/reprisemq/reprise/topology/preset"
)

var update = flag.Bool("update", false, "write the golden files anew")

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

// midway is a run in its fourth second, and its last attempts.
func midway() (state, []attempt) {
	s := state{
		counts:  counts{in: 53, done: 42, failed: 2, retries: 16, running: 3},
		elapsed: 3700 * time.Millisecond, target: 60,
	}
	for name, depth := range map[string]int{preset.CoverArtIndexQueue: 12, preset.CoverArtRetryQueue: 7, preset.CoverArtFailedQueue: 2} {
		q := queue{name: name}
		for n := range 30 {
			q.push(depth * n / 30)
		}
		q.push(depth)
		s.queues = append(s.queues, q)
	}
	slices.SortFunc(s.queues, func(a, b queue) int { return b.depth - a.depth })
	return s, []attempt{
		{at: 3100 * time.Millisecond, outcome: outcomeDone, event: "delete", about: "Live in Hong Kong 2001 · Deep Purple", number: 2},
		{
			at: 3200 * time.Millisecond, outcome: outcomeRetry, event: "index", about: "Dance Fever (live at Madison Square Garden) · Florence + the Machine", number: 2,
			note: "503 SlowDown: PUT mbid-27dd50ed-1446-4f14-8cda-23fe2f476ccc/index.json: Please reduce your request rate.",
		},
		{
			at: 3300 * time.Millisecond, outcome: outcomeFailed, event: "move", about: "(an invalid body)", number: 1,
			note: `move event: "none" is not the MBID of a release`,
		},
		{at: 3400 * time.Millisecond, outcome: outcomeDone, event: "index", about: "João · Bebel Gilberto", number: 1, note: "one of a burst, the last of it stands for all"},
	}
}

// lines are everything that a terminal of a width shows.
func everything(s state, attempts []attempt, width int) []line {
	lines := introLines("the embedded broker", 2*time.Second, width)
	for _, a := range attempts {
		lines = append(lines, attemptLine(a, width))
	}
	return append(lines, footerLines(s, width)...)
}

func render(lines []line, width int, colour bool) string {
	var out strings.Builder
	for _, l := range lines {
		out.WriteString(l.render(width, colour) + "\n")
	}
	return out.String()
}

func TestLines(t *testing.T) {
	s, attempts := midway()
	golden(t, "terminal-80.txt", render(everything(s, attempts, 79), 79, false))
	golden(t, "terminal-120.txt", render(everything(s, attempts, 119), 119, false))
	golden(t, "terminal-colour.txt", strings.ReplaceAll(render(everything(s, attempts, 79), 79, true), "\x1b", "␛"))
	s.target, s.phase = 0, "no more events"
	golden(t, "terminal-endless.txt", render(everything(s, attempts, 79), 79, false))
}

// No line is wider than the terminal.
func TestLinesFit(t *testing.T) {
	s, attempts := midway()
	for _, s := range []state{s, {}} {
		for width := 1; width < 200; width++ {
			for _, l := range everything(s, attempts, width) {
				if got := utf8.RuneCountInString(l.render(width, false)); got > width {
					t.Fatalf("width %d: a line has %d characters: %s", width, got, l.render(width, false))
				}
			}
		}
	}
}

func TestFooter(t *testing.T) {
	var out strings.Builder
	height := 24
	v := &screen{out: &out, size: func() (int, int, error) { return 80, height, nil }}
	s, attempts := midway()
	v.update(s)
	first := out.String()
	if !strings.HasPrefix(first, hideCursor) || !strings.Contains(first, "in 53 of 60") {
		t.Errorf("first footer: %q", first)
	}
	drawn := strings.Count(first, "\n")
	up := fmt.Sprintf(hideCursor+upLines+clearBelow, drawn)
	out.Reset()
	v.print(attemptLine(attempts[0], 79))
	if !strings.HasPrefix(out.String(), up+"  3.1s  done    delete  Live in Hong Kong") || strings.Count(out.String(), "\n") != drawn+1 {
		t.Errorf("a line is not above the footer: %q", out.String())
	}
	out.Reset()
	height = 4
	v.update(s)
	if strings.Count(out.String(), "\n") != height-1 {
		t.Errorf("the footer is higher than the terminal: %q", out.String())
	}
	out.Reset()
	v.end(queueLines(s.queues))
	if !strings.HasSuffix(out.String(), showCursor) || strings.Contains(out.String(), "in 53 of 60") {
		t.Errorf("the footer is not removed: %q", out.String())
	}
	out.Reset()
	v.print(attemptLine(attempts[0], 79))
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("control sequences after the end: %q", out.String())
	}
}

func TestSparkline(t *testing.T) {
	for want, history := range map[string][]int{
		"▁▂▃▄▅▆▇█": {1, 2, 3, 4, 5, 6, 7, 8},
		" ▁ █":     {0, 1, 0, 80},
		"▁":        {1},
		"":         nil,
	} {
		if got := sparkline(history, 8); got != want {
			t.Errorf("%v: %q, want %q", history, got, want)
		}
	}
	if got := sparkline([]int{8, 0, 8}, 2); got != " █" {
		t.Errorf("the newest are not kept: %q", got)
	}
}

func TestWrapAndFit(t *testing.T) {
	if got := render(wrapped(line{}.add(normal, "head "), normal, "one two three four five six", 27), 27, false); got != "head one two three four\n     five six\n" {
		t.Error(got)
	}
	if got := fit("João Gilberto", 6); got != "João…" {
		t.Error(got)
	}
}

func TestPlain(t *testing.T) {
	var out strings.Builder
	v := newScreen(Options{Out: &out})
	s, attempts := midway()
	v.print(introLines("the embedded broker", 2*time.Second, v.width())...)
	for _, a := range attempts {
		v.print(attemptLine(a, v.width()))
	}
	v.update(s)
	v.end(queueLines(s.queues))
	golden(t, "plain.txt", out.String())
}
