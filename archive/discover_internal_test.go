package archive

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/doctor"
)

// A queue is taken after two equal verdicts in succession, never twice, and each verdict is logged once.
func TestDiscoveryTakesQueueAfterTwoLooks(t *testing.T) {
	var log bytes.Buffer
	var taken []string
	d := &discovery{
		link: &link{a: &Archive{cfg: Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}}}, found: func(queues []string) { taken = append(taken, queues...) },
		known: []string{"named"}, seen: map[string]bool{}, logged: map[string]bool{}, first: true,
	}
	look := func(flickers bool) {
		d.take([]doctor.Verdict{
			{Queue: "named", Take: true, Why: "evidence"},
			{Queue: "dead", Take: true, Why: "evidence"},
			{Queue: "flickers", Take: flickers, Why: "it has consumers: 1"},
			{Queue: "work"},
			{Queue: "waits", Why: "its messages go on"},
		})
	}
	for i, flickers := range []bool{true, false, true, false, true, true, true} {
		look(flickers)
		if i == 0 && len(taken) > 0 || i < 5 && slices.Contains(taken, "flickers") {
			t.Errorf("look %d: took %q too early", i+1, taken)
		}
	}
	if !slices.Equal(taken, []string{"dead", "flickers"}) {
		t.Errorf("took %q, want dead and flickers once each", taken)
	}
	for text, want := range map[string]int{"queue=named": 0, "queue=dead": 1, "queue=waits": 1, "queues=work": 1} {
		if n := strings.Count(log.String(), text); n != want {
			t.Errorf("logged %q %d times, want %d:\n%s", text, n, want, &log)
		}
	}
}
