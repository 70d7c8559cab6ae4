package show

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestThousands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64().Draw(t, "n")
		text := Thousands(n)
		back, err := strconv.ParseInt(strings.NewReplacer(",", "", "−", "-").Replace(text), 10, 64)
		if err != nil || back != n {
			t.Fatalf("Thousands(%d): got %q, want the same number", n, text)
		}
		groups := strings.Split(strings.TrimPrefix(text, "−"), ",")
		for i, g := range groups {
			if i > 0 && len(g) != 3 || len(g) == 0 || len(g) > 3 {
				t.Fatalf("Thousands(%d): got %q, want groups of three digits", n, text)
			}
		}
	})
}

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "just now", 4 * time.Second: "just now", 59 * time.Second: "59 s ago", 60 * time.Second: "1 min ago",
		119 * time.Minute: "2 h ago", 49 * time.Hour: "2 d ago", 400 * 24 * time.Hour: "400 d ago", -90 * time.Second: "in 2 min",
		-2*time.Hour + time.Second: "in 2 h", -40 * time.Minute: "in 40 min", 3570 * time.Second: "1 h ago", 3569 * time.Second: "59 min ago",
	} {
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		if got := Ago(now, now.Add(-d)); got != want {
			t.Errorf("Ago for %v: got %q, want %q", d, got, want)
		}
	}
}

func TestDue(t *testing.T) {
	for d, want := range map[time.Duration]string{
		2 * time.Second: "in less than 5 s", 5 * time.Second: "in 5 s", 0: "just now", -2 * time.Second: "just now", -time.Minute: "1 min ago",
	} {
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		if got := Due(now, now.Add(d)); got != want {
			t.Errorf("Due in %v: got %q, want %q", d, got, want)
		}
	}
}

func TestExactly(t *testing.T) {
	for ms, want := range map[int64]string{0: "0 s", 300000: "5 min", 14400000: "4 h", 5000: "5 s", 90061001: "1 d 1 h 1 min 1 s 1 ms"} {
		if got := Exactly(time.Duration(ms) * time.Millisecond); got != want {
			t.Errorf("Exactly(%d ms): got %q, want %q", ms, got, want)
		}
	}
}
