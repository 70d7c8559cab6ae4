package notification

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// reading returns a reading at the given number of seconds after noon.
func reading(seconds int, groups ...Group) *Reading {
	r := &Reading{Time: noon.Add(time.Duration(seconds) * time.Second), Groups: groups}
	for _, g := range groups {
		r.Newest = max(r.Newest, g.ID)
	}
	return r
}

// A completed replay is reported only when all outcomes are known, because the notification lists them.
func TestReplayEndsWithKnownOutcomes(t *testing.T) {
	for _, x := range []struct {
		replay failed.Replay
		want   bool
	}{
		{failed.Replay{State: failed.ReplayRunning}, false},
		{failed.Replay{State: failed.ReplayDone, Verifying: true}, false},
		{failed.Replay{State: failed.ReplayDone}, true},
		{failed.Replay{State: failed.ReplayStopped}, true},
		{failed.Replay{State: failed.ReplayCancelling}, false},
		{failed.Replay{State: failed.ReplayCancelled}, true},
	} {
		if got := replayOf(x.replay).Ended; got != x.want {
			t.Errorf("state %s, verifying %t: got ended %t, want %t", x.replay.State, x.replay.Verifying, got, x.want)
		}
	}
}

// keys returns the keys of events.
func keys(events []Event) []string {
	var all []string
	for _, e := range events {
		all = append(all, e.key())
	}
	return all
}

func TestDetect(t *testing.T) {
	some := Group{ID: 1, Arrived: 5, Failed: 5, Queue: "orders", Text: "no such customer"}
	more := func(n int64) Group { return Group{ID: 1, Arrived: 5 + n, Failed: 5 + n, Queue: "orders"} }
	replays := func(r *Reading, replays ...Replay) *Reading { r.Replays = replays; return r }
	missing := func(r *Reading, missing map[string]int64) *Reading { r.Missing = missing; return r }
	stopped := Replay{ID: 3, Ended: true, State: failed.ReplayStopped}
	for name, x := range map[string]struct {
		before, now *Reading
		want        []string
	}{
		"first reading":                      {&Reading{}, replays(reading(0, some, more(1000)), stopped), nil},
		"nothing new":                        {reading(0, some), reading(10, some), nil},
		"new group":                          {reading(0, some), reading(10, some, Group{ID: 2, Arrived: 1, Queue: "orders"}), []string{"new-group group/2"}},
		"new muted group":                    {reading(0, some), reading(10, some, Group{ID: 2, Arrived: 1000, Failed: 1000, Muted: true}), nil},
		"old group in a later reading":       {reading(0, Group{ID: 2}), reading(10, more(1000), Group{ID: 2}), nil},
		"growth":                             {reading(0, some), reading(10, more(100)), []string{"group-growth group/1", "queue-growth queue/orders"}},
		"growth below the limit":             {reading(0, some), reading(300, more(99)), nil},
		"growth over more than a window":     {reading(0, some), reading(600, more(199)), nil},
		"twice the growth in twice a window": {reading(0, some), reading(600, more(200)), []string{"group-growth group/1", "queue-growth queue/orders"}},
		"growth of many groups": {
			reading(0, some, Group{ID: 2, Queue: "orders"}),
			reading(10, more(50), Group{ID: 2, Queue: "orders", Arrived: 50, Failed: 50}),
			[]string{"queue-growth queue/orders"},
		},
		"replayed failures": {
			reading(0, some), reading(10, Group{ID: 1, Arrived: 105, Failed: 5, Queue: "orders"}),
			[]string{"group-growth group/1"},
		},
		"stopped replay":           {reading(0, some), replays(reading(10, some), stopped), []string{"replay-stopped replay/3"}},
		"running replay":           {reading(0), replays(reading(10), Replay{ID: 3}), nil},
		"replay that ended before": {replays(reading(0), stopped), replays(reading(10), stopped), nil},
		"replay that ended now": {
			replays(reading(0), Replay{ID: 3}), replays(reading(10), Replay{ID: 3, Ended: true, State: failed.ReplayDone}),
			[]string{"replay-done replay/3"},
		},
		"missing messages": {missing(reading(0), map[string]int64{"a": 1}), missing(reading(10), map[string]int64{"a": 2, "b": 3}), []string{"messages-missing account/b"}},
		"new ledger":       {reading(0), missing(reading(10), map[string]int64{"b": -3}), []string{"messages-missing account/b"}},
	} {
		if got := keys(detect(x.before, x.now, 100)); !slices.Equal(got, x.want) {
			t.Errorf("%s: got events %q, want %q", name, got, x.want)
		}
	}
}

func TestDetectTexts(t *testing.T) {
	before := reading(0, Group{ID: 1})
	now := reading(10, Group{ID: 1}, Group{ID: 2, Arrived: 3, Queue: "or\nders", Text: "no\x1b[31m such customer\nat line 3"})
	now.Replays = []Replay{{ID: 3, Ended: true, State: failed.ReplayStopped, Why: "the same failure came back", Outcomes: Outcomes{Selected: 9, Sent: 4, Succeeded: 1, FailedAgain: 3, Refused: 2}}}
	e := detect(before, now, 100)
	if len(e) != 2 || e[0].Title != "New error group in or" || e[0].Detail != "no [31m such customer" || e[0].Messages != 3 || e[0].page() != "/groups/2" {
		t.Errorf("group event: got %+v, want 3 messages of group 2", e)
	}
	const want = "4 of 9 sent: 1 succeeded, 3 failed again, 0 settled, 0 are retried, 0 unknown; 2 refused; the same failure came back"
	if len(e) == 2 && (e[1].Detail != want || e[1].Outcomes == nil || e[1].Outcomes.FailedAgain != 3 || e[1].page() != "/replays/3") {
		t.Errorf("replay event: got %+v, want detail %q", e[1], want)
	}
}

func anyReading(t *rapid.T, label string, after *Reading) *Reading {
	r := &Reading{Time: after.Time.Add(time.Duration(rapid.IntRange(1, 900).Draw(t, label+" after")) * time.Second)}
	if after.Time.IsZero() {
		r.Time = noon
	}
	for id := range failed.GroupID(rapid.IntRange(int(after.Newest), int(after.Newest)+5).Draw(t, label+" groups")) {
		g := Group{ID: id + 1, Queue: fmt.Sprint("q", id%2), Muted: rapid.Bool().Draw(t, label+" muted")}
		g.Arrived = int64(rapid.IntRange(0, 300).Draw(t, label+" arrived"))
		g.Failed = rapid.Int64Range(0, g.Arrived).Draw(t, label+" failed")
		r.Groups = append(r.Groups, g)
		r.Newest = g.ID
	}
	return r
}

// Muted groups cause no events, each new group that is not muted causes an event, and equal readings cause no events.
func TestDetectProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := anyReading(t, "before", &Reading{})
		now := anyReading(t, "now", before)
		got := keys(detect(before, now, 100))
		for _, g := range now.Groups {
			isNew := slices.Contains(got, fmt.Sprintf("new-group group/%d", g.ID))
			if want := g.ID > before.Newest && !g.Muted; isNew != want {
				t.Errorf("group %d: got new %t, want %t", g.ID, isNew, want)
			}
			if g.Muted && slices.Contains(got, fmt.Sprintf("group-growth group/%d", g.ID)) {
				t.Errorf("growth of the muted group %d was reported", g.ID)
			}
		}
		if same := detect(now, now, 100); len(same) > 0 {
			t.Errorf("equal readings: got events %q, want none", keys(same))
		}
	})
}
