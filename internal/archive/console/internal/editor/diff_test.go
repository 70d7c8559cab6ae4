package editor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The deleted and the unchanged lines together form the first text. The added and the unchanged lines form the second
// text.
func TestDiff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom([]string{"a", "b", "c", ""})
		before := strings.Join(rapid.SliceOfN(line, 1, 30).Draw(t, "before"), "\n")
		after := strings.Join(rapid.SliceOfN(line, 1, 30).Draw(t, "after"), "\n")
		lines := diff(before, after, 1000)
		if before == after {
			if lines != nil {
				t.Fatalf("diff of equal texts: got %v", lines)
			}
			return
		}
		var first, second []string
		for _, l := range lines {
			if l.Class != "add" {
				first = append(first, l.Text)
			}
			if l.Class != "del" {
				second = append(second, l.Text)
			}
		}
		if got := strings.Join(first, "\n"); got != before {
			t.Fatalf("first text: got %q, want %q", got, before)
		}
		if got := strings.Join(second, "\n"); got != after {
			t.Fatalf("second text: got %q, want %q", got, after)
		}
	})
}

func TestDiffLimitsLines(t *testing.T) {
	got := diff(strings.Repeat("a\n", 10*maxDiffLines), strings.Repeat("b\n", 10*maxDiffLines), 1)
	if last := got[len(got)-1]; len(got) != maxDiffLines+1 || last != (diffLine{"skip-lines", "38,001 more lines of the comparison"}) {
		t.Errorf("got %d lines, want %d, last line %v, want %v", len(got), maxDiffLines+1, last, diffLine{"skip-lines", "38,001 more lines of the comparison"})
	}
}

func TestDiffOmitsUnchangedLines(t *testing.T) {
	got := diff("1\n2\n3\n4\n5\n6\n7", "1\n2\n3\n4!\n5\n6\n7", 1)
	want := []diffLine{{"skip-lines", "2 unchanged lines"}, {"", "3"}, {"del", "4"}, {"add", "4!"}, {"", "5"}, {"skip-lines", "2 unchanged lines"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
