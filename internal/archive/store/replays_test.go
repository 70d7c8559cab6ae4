package store_test

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/topology"
)

func TestReplayPreservesPlan(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock()
		a := db.archive(t, c.use)
		value(a.Ingest(t.Context(), []failed.Arrived{{Message: failed.Message{FailedQueue: "q.failed", Error: "word"}}}))(t)
		plan := failed.Plan{
			Filter: failed.Filter{Queue: "q", States: []failed.State{failed.Failed}, Since: c.now().Add(-time.Hour), Text: "word"},
			To:     &failed.Target{Exchange: "x", RoutingKey: "k"}, Rate: 2.5, Ramp: true, Canary: time.Minute, IgnoreSame: true,
		}
		begun := value(a.BeginReplay(t.Context(), plan, "me"))(t)
		want := &failed.Replay{ID: begun.ID, Plan: plan, State: failed.ReplayRunning, Actor: "me", Begun: c.now(), Total: 1}
		if d := gocmp.Diff(want, begun, same); d != "" {
			t.Errorf("BeginReplay: replay differs: %s", d)
		}
		if d := gocmp.Diff(want, value(a.Replay(t.Context(), begun.ID))(t), same); d != "" {
			t.Errorf("Replay: replay differs: %s", d)
		}
		if r := value(a.Running(t.Context()))(t); len(r) != 1 || r[0].ID != begun.ID {
			t.Errorf("Running: got %+v, want only replay %d", r, begun.ID)
		}
		for _, p := range []failed.Plan{{Rate: -1}, {Rate: math.NaN()}, {Canary: -1}, {Filter: failed.Filter{States: []failed.State{"x"}}}} {
			if _, err := a.BeginReplay(t.Context(), p, "me"); !errors.Is(err, failed.ErrInvalid) {
				t.Errorf("plan %+v: got error %v, want ErrInvalid", p, err)
			}
		}
	})
}

// A stored replay keeps the names in its plan byte for byte, although JSON contains only UTF-8.
func TestReplayPreservesNames(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		for i, name := range []string{"q\xff", "\xc3(", "base64:cQ==", "q\ufffd"} {
			m := failed.Message{Queue: name, FailedQueue: "q.failed", Content: failed.Content{Headers: topology.Table{name: "1"}}}
			other := failed.Message{Queue: "q", FailedQueue: "q.failed"}
			value(a.Ingest(t.Context(), []failed.Arrived{{Message: m}, {Message: other}}))(t)
			want := failed.Plan{
				Filter: failed.Filter{Queue: params.Text(name), Headers: params.Texts{name: "1"}},
				To:     &failed.Target{Exchange: name, RoutingKey: name}, Edit: &failed.BulkEdit{RemoveHeaders: []string{name}},
			}
			begun := value(a.BeginReplay(t.Context(), want, "me"))(t)
			got := value(a.Replay(t.Context(), begun.ID))(t)
			if d := gocmp.Diff(want, got.Plan, same); d != "" || got.Total != 1 {
				t.Errorf("name %d: got %d messages, want 1; plan differs: %s", i, got.Total, d)
			}
		}
	})
}

// If two users replay the same messages, each message is in one replay.
func TestMessageBelongsToOneReplay(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		a := db.archive(t)
		arrivals := make([]failed.Arrived, 100)
		for i := range arrivals {
			arrivals[i].FailedQueue = "q.failed"
		}
		value(a.Ingest(t.Context(), arrivals))(t)
		var mu sync.Mutex
		var total int64
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				r, err := a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{IDs: []failed.ID{failed.ID(1 + i), failed.ID(2 + i), failed.ID(50 + i)}}}, "me")
				if errors.Is(err, failed.ErrNotFound) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				total += r.Total
				mu.Unlock()
			})
		}
		all.Wait()
		if n := value(a.Count(t.Context(), failed.Filter{States: []failed.State{failed.Replaying}}))(t); n.N != total || total != 13 {
			t.Errorf("got %d messages in state replaying and %d in the replays, want 13", n.N, total)
		}
	})
}

// Next returns the oldest failures first, with their edits, and limits the total size of the bodies.
func TestNextReturnsOldestUnsentMessages(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		c := newClock()
		a := db.archive(t, c.use)
		large := make([]byte, 9<<20)
		var arrivals []failed.Arrived
		for i, body := range [][]byte{[]byte("newest"), large, large, []byte("oldest")} {
			arrivals = append(arrivals, failed.Arrived{Message: failed.Message{
				FailedQueue: "q.failed", LastFailed: c.now().Add(-time.Duration(i) * time.Second), Content: failed.Content{Body: body},
			}})
		}
		ids := value(a.Ingest(t.Context(), arrivals))(t)
		check(t, a.Edit(t.Context(), ids[3], 0, failed.Content{Body: []byte("edited"), Headers: topology.Table{"n": int8(1)}}, "me"))
		r := value(a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "me"))(t)
		for _, want := range [][]failed.ID{{ids[3], ids[2]}, {ids[1], ids[0]}, nil} {
			next := value(a.UnsentOf(t.Context(), r.ID, 10))(t)
			var got []failed.ID
			for _, m := range next {
				got = append(got, m.ID)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("Next: got %v, want %v", got, want)
			}
			if len(next) > 0 && next[0].ID == ids[3] && (string(next[0].Current().Body) != "edited" || string(next[0].Body) != "oldest") {
				t.Errorf("Next: got body %q with original %q, want \"edited\" with original \"oldest\"", next[0].Current().Body, next[0].Body)
			}
			check(t, a.Sent(t.Context(), r.ID, got))
		}
		check(t, a.EndReplay(t.Context(), r.ID, failed.ReplayDone, "", "me"))
		if _, err := a.Replay(t.Context(), 99); !errors.Is(err, failed.ErrNotFound) {
			t.Errorf("Replay of an unknown replay: got error %v, want ErrNotFound", err)
		}
		if err := a.EndReplay(t.Context(), 99, failed.ReplayStopped, "", "me"); !errors.Is(err, failed.ErrNotFound) {
			t.Errorf("EndReplay of an unknown replay: got error %v, want ErrNotFound", err)
		}
	})
}
