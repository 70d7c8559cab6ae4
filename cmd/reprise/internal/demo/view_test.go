package demo

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
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

// midway is a run in its fourth second.
func midway() state {
	s := state{
		intro:   intro{broker: "the embedded broker", retryDelay: 2 * time.Second},
		elapsed: 3700 * time.Millisecond, target: 60,
		figures: figures{in: 53, done: 42, failed: 2, attempts: 60, retry: 16, running: 3},
		last: []entry{
			{at: 3100 * time.Millisecond, outcome: outcomeDone, event: "delete", about: "Live in Hong Kong 2001 · Deep Purple", attempt: 2},
			{
				at: 3200 * time.Millisecond, outcome: outcomeRetry, event: "index", about: "Dance Fever (live at Madison Square Garden) · Florence + the Machine", attempt: 2,
				note: "503 SlowDown: PUT mbid-27dd50ed-1446-4f14-8cda-23fe2f476ccc/index.json: Please reduce your request rate.",
			},
			{
				at: 3300 * time.Millisecond, outcome: outcomeFailed, event: "move", about: "(a body that makes no sense)", attempt: 1,
				note: `move event: "none" is not the MBID of a release`,
			},
			{at: 3400 * time.Millisecond, outcome: outcomeDone, event: "index", about: "João · Bebel Gilberto", attempt: 1, note: "one of a burst, the last of it stands for all"},
		},
	}
	for i, d := range []Depth{
		{preset.CoverArtIndexQueue, 12, 3},
		{preset.CoverArtDeleteQueue, 0, 1},
		{preset.CoverArtMoveQueue, 0, Unknown},
		{preset.CoverArtRetryQueue, 7, 0},
		{preset.CoverArtFailedQueue, 2, 0},
	} {
		q := queueState{}
		for n := range 30 {
			q.push(Depth{d.Name, d.Ready * n / 30, i % 2})
		}
		q.push(d)
		s.queues = append(s.queues, q)
	}
	return s
}

func render(lines []line, width int, colour bool) string {
	var out strings.Builder
	for _, l := range lines {
		out.WriteString(l.render(width, colour) + "\n")
	}
	return out.String()
}

func TestFrame(t *testing.T) {
	s := midway()
	golden(t, "frame-80x24.txt", render(frame(s, 79, 24), 79, false))
	golden(t, "frame-120x40.txt", render(frame(s, 119, 40), 119, false))
	golden(t, "frame-colour.txt", strings.ReplaceAll(render(frame(s, 79, 24), 79, true), "\x1b", "␛"))
	s.target, s.phase = 0, "no more events"
	golden(t, "frame-endless.txt", render(frame(s, 79, 24), 79, false))
}

// Whatever the terminal's size, no line is wider, and the frame is no higher
// than it can be.
func TestFrameFits(t *testing.T) {
	for _, s := range []state{midway(), {}} {
		for width := 1; width < 200; width++ {
			for _, l := range frame(s, width, 24) {
				if got := utf8.RuneCountInString(l.render(width, false)); got > width {
					t.Fatalf("width %d: a line has %d characters: %s", width, got, l.render(width, false))
				}
			}
		}
		for height := 22; height < 60; height++ {
			if n := len(frame(s, 79, height)); n >= height {
				t.Errorf("height %d: %d lines", height, n)
			}
		}
	}
}

func TestLiveView(t *testing.T) {
	var out strings.Builder
	size := errors.New("no size") // 80 × 24 then
	v := &liveView{out: &out, size: func() (int, int, error) { return 0, 0, size }}
	s := midway()
	v.begin(s.intro)
	v.attempt(s.last[0])
	v.update(s)
	first := out.String()
	if !strings.HasPrefix(first, hideCursor) || !strings.Contains(first, "Live in Hong Kong") || strings.Contains(first, "\x1b[1F") {
		t.Errorf("first frame: %q", first)
	}
	out.Reset()
	v.update(s)
	if up := "\x1b[" + "17F"; !strings.HasPrefix(out.String(), up) || strings.Count(out.String(), "\n") != 17 {
		t.Errorf("second frame does not replace the first: %q", out.String())
	}
	out.Reset()
	v.end(s)
	if !strings.HasSuffix(out.String(), showCursor) || strings.Contains(out.String(), "Live in Hong Kong") {
		t.Errorf("last frame: %q", out.String())
	}
	out.Reset()
	v.update(s)
	v.end(s)
	if out.Len() > 0 {
		t.Errorf("after the end: %q", out.String())
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
	if got := strings.Join(wrap("one two three", 7), "|"); got != "one two|three" {
		t.Error(got)
	}
	if got := fit("João Gilberto", 6); got != "João…" {
		t.Error(got)
	}
}

func TestPlainView(t *testing.T) {
	var out strings.Builder
	v := newView(Options{Out: &out})
	s := midway()
	v.begin(s.intro)
	for _, e := range s.last {
		v.attempt(e)
	}
	v.update(s)
	v.end(s)
	golden(t, "plain.txt", out.String())
}
