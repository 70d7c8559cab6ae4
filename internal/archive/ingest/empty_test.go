package ingest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testkit"
)

// Empty removes the oldest messages up to its limit, saves them, and records the act. A replay returns them to
// the queue.
func TestEmpty(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		queue := w.Queue("work", nil)
		var bodies []string
		for i := range 700 { // more than a batch
			bodies = append(bodies, fmt.Sprint("body ", i))
		}
		w.Publish(queue, map[string]any{"n": int32(7)}, bodies...)
		for _, cfg := range []EmptyConfig{{Limit: 1, Reason: "r"}, {Queue: queue, Reason: "r"}, {Queue: queue, Limit: 1, Reason: " "}} {
			if n, err := Empty(t.Context(), w.Client, w.Archive, cfg, "me"); n != 0 || err == nil {
				t.Errorf("invalid config %+v: got %d, %v, want an error", cfg, n, err)
			}
		}
		n, err := Empty(t.Context(), w.Client, w.Archive, EmptyConfig{Queue: queue, Limit: 600, Reason: "a test"}, "me")
		if n != 600 || err != nil {
			t.Fatalf("got %d, %v, want 600 messages", n, err)
		}
		var saved []string
		for _, m := range w.Archived() {
			if m.State != failed.Discarded || m.Discarded != "a test" || m.FailedQueue != queue || m.Headers["n"] != int32(7) {
				t.Fatalf("got saved message %+v, want state discarded, reason \"a test\", queue %s, header n 7", m, queue)
			}
			saved = append(saved, string(m.Body))
		}
		slices.Sort(saved)
		want := slices.Sorted(slices.Values(bodies[:600]))
		if !slices.Equal(saved, want) {
			t.Errorf("got %d saved messages, from %q to %q, want the oldest 600", len(saved), saved[0], saved[len(saved)-1])
		}
		n, err = Empty(t.Context(), w.Client, w.Archive, EmptyConfig{Queue: queue, Limit: 40, Reason: "a test", Drop: true}, "me")
		if n != 40 || err != nil || len(w.Archived()) != 600 {
			t.Errorf("drop: got %d, %v, want 40 messages", n, err)
		}
		acts, _, err := w.Archive.Acts(t.Context(), store.ActFilter{}, store.Page{})
		archivetest.Must(t, err)
		var recorded []string
		for _, a := range acts {
			recorded = append(recorded, fmt.Sprint(a.Verb, " ", a.Details["messages"], " ", a.Details["saved"], " ", a.Details["queue"] == queue, " ", a.Details["reason"]))
		}
		if want := []string{"purge queue 40 false true a test", "purge queue 100 true true a test", "purge queue 500 true true a test"}; !slices.Equal(recorded, want) {
			t.Errorf("got acts %q, want %q", recorded, want)
		}
		if n, err := w.Archive.Restore(t.Context(), failed.Filter{Act: acts[1].ID}, "me"); n != 100 || err != nil {
			t.Errorf("restore of an act: got %d, %v, want its 100 messages", n, err)
		}
		if _, err := w.Archive.Restore(t.Context(), failed.Filter{IDs: []failed.ID{1}}, "me"); err != nil {
			t.Error(err)
		}
		r, err := w.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{IDs: []failed.ID{1}}, To: &failed.Target{RoutingKey: queue}}, "me")
		archivetest.Must(t, err)
		replayer := replay.New(w.Client, w.Archive, replay.Config{})
		if r, err = replayer.Finish(t.Context(), r.ID); err != nil || r.Sent != 1 {
			t.Errorf("got replay %+v, %v, want 1 sent message", r, err)
		}
		left := w.Take(queue)
		if len(left) != 61 || string(left[0].Body) != "body 640" || string(left[60].Body) != saved[0] && !slices.Contains(saved, string(left[60].Body)) {
			t.Errorf("got %d messages in the queue, want 61; the first is %q", len(left), left[0].Body)
		}
		if n, err := Empty(t.Context(), w.Client, w.Archive, EmptyConfig{Queue: queue + "-none", Limit: 1, Reason: "r"}, "me"); n != 0 || err == nil {
			t.Errorf("unknown queue: got %d, %v, want an error", n, err)
		}
	})
}
