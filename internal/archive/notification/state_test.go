package notification

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

func anyKind(Kind) bool { return true }

var usual = settings{gather: DefaultGather, cooldown: DefaultCooldown, growth: DefaultGrowth, wants: anyKind}

// One message contains all events of a short period.
func TestAdvanceGathers(t *testing.T) {
	s, due := state{}.advance(noon, reading(0, Group{ID: 1}), nil, usual)
	if due != nil {
		t.Fatalf("first reading: got message %+v, want none", due)
	}
	groups := []Group{{ID: 1}}
	for i := range 30 {
		groups = append(groups, Group{ID: failed.GroupID(i + 2)})
		s, due = s.advance(noon.Add(time.Duration(i+1)*time.Second), reading(i+1, groups...), nil, usual)
		if due != nil {
			t.Fatalf("got a message after %d s, want one after 30 s", i)
		}
	}
	_, due = s.advance(noon.Add(31*time.Second), nil, nil, usual)
	if due == nil || due.Counts[NewGroup] != 30 || len(due.Events) != maxShown {
		t.Fatalf("after 30 s: got message %+v, want 30 new groups, %d of them listed", due, maxShown)
	}
	if text := summary(due); text != "Reprise: 30 new error groups" {
		t.Errorf("summary: got %q, want 30 new error groups", text)
	}
}

// The first reading of a new archive may come after the first failures.
func TestAdvanceReportsGroupsSinceStart(t *testing.T) {
	old := Group{ID: 1, Arrived: 500, Failed: 500}
	set := usual
	set.first = reading(0, old)
	s, _ := state{}.advance(noon.Add(2*time.Second), reading(2, old, Group{ID: 2, Arrived: 1, Failed: 1}), nil, set)
	s, _ = s.advance(noon.Add(12*time.Second), reading(12, old, Group{ID: 2, Arrived: 2, Failed: 2}), nil, set)
	if len(s.Waiting) != 1 || s.Waiting[0].Kind != NewGroup || s.Waiting[0].Subject != "group/2" {
		t.Errorf("got events %+v, want only the new group 2", s.Waiting)
	}
}

// An intermittent condition is reported once within the cooldown.
func TestAdvanceCoolsDown(t *testing.T) {
	s, notified := state{}, 0
	var due *batch
	for i := range 240 { // 2 h
		now := noon.Add(time.Duration(i) * 30 * time.Second)
		var events []Event
		if i%2 == 1 {
			events = []Event{{Kind: StoreUnavailable, Subject: "store/ledger"}}
		}
		if s, due = s.advance(now, nil, events, usual); due != nil {
			notified++
		}
	}
	if notified != 2 {
		t.Errorf("got %d messages in 2 h, want 2", notified)
	}
}

// A reading without a ledger does not cause missing messages to be reported again.
func TestAdvanceKeepsLedger(t *testing.T) {
	missing := reading(0)
	missing.Missing = map[string]int64{"orders": 1}
	s, _ := state{}.advance(noon, missing, nil, usual)
	s, _ = s.advance(noon.Add(10*time.Second), reading(10), nil, usual)
	missing.Time = noon.Add(2 * time.Hour)
	if s, _ = s.advance(missing.Time, missing, nil, usual); len(s.Counts) > 0 {
		t.Errorf("got events %+v, want none", s.Waiting)
	}
}

func TestAdvanceOmitsOtherKinds(t *testing.T) {
	some := usual
	some.wants = func(k Kind) bool { return k == BreakerOpen }
	s, _ := state{}.advance(noon, nil, []Event{{Kind: BreakerOpen, Subject: "queue/a"}, {Kind: TimeoutNear, Subject: "queue/a"}}, some)
	_, due := s.advance(noon.Add(time.Minute), nil, nil, some)
	if due == nil || len(due.Events) != 1 || due.Events[0].Kind != BreakerOpen {
		t.Errorf("got message %+v, want only BreakerOpen", due)
	}
}

// Each group is reported as new exactly once, at any interval between readings.
func TestAdvanceReportsEachNewGroupOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, r, notified := state{}, &Reading{}, int64(0)
		var due *batch
		first := anyReading(t, "first", r)
		s, _ = s.advance(first.Time, first, nil, usual)
		r = first
		for i := range rapid.IntRange(1, 10).Draw(t, "readings") {
			r = anyReading(t, fmt.Sprint(i), r)
			for j := range r.Groups {
				r.Groups[j].Muted = false
			}
			if s, due = s.advance(r.Time, r, nil, usual); due != nil {
				notified += due.Counts[NewGroup]
			}
		}
		if _, due = s.advance(r.Time.Add(time.Hour), nil, nil, usual); due != nil {
			notified += due.Counts[NewGroup]
		}
		if want := int64(r.Newest - first.Newest); notified != want {
			t.Errorf("got %d events for new groups, want %d", notified, want)
		}
	})
}
