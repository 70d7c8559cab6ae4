package rehearsal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
)

// The ledger balances if and only if it counts each message exactly once.
func TestLedgerBalancesUnlessMessagesAreMissing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tally := newTally(&bytes.Buffer{})
		found := map[string]int{}
		others := rapid.IntRange(0, 1).Draw(t, "consumers of others")
		missing := 0
		for i := range rapid.IntRange(0, 20).Draw(t, "messages") {
			id := fmt.Sprint(i)
			tally.expect(id, plannedEvent{event: "index"})
			switch rapid.SampledFrom([]string{"done", "equal", "parked", "moved to the failed queue by hand", "removed after parking", "unknown"}).Draw(t, id) {
			case "done":
				tally.Observe(reprise.Event{Kind: reprise.EventDone, MessageID: id})
			case "equal":
				tally.Observe(reprise.Event{Kind: reprise.EventDebounced, MessageID: id})
			case "parked":
				tally.Observe(reprise.Event{Kind: reprise.EventParked, MessageID: id})
				found[id] = 1
			case "moved to the failed queue by hand":
				found[id] = 1
			case "removed after parking":
				tally.Observe(reprise.Event{Kind: reprise.EventParked, MessageID: id})
				missing++
			case "unknown":
				if others == 0 {
					missing++
				}
			}
		}
		l := tally.count(found, others)
		if l.balances() != (missing == 0) {
			t.Fatalf("balances of %+v: got %v with %d missing messages, want %v", l, l.balances(), missing, missing == 0)
		}
		var out bytes.Buffer
		l.write(&out)
		if strings.Contains(out.String(), "missing") != (missing > 0) {
			t.Fatalf("ledger must mention missing messages only if there are any: got %d missing and\n%s", missing, &out)
		}
	})
}

func TestUnplannedReturnsUnexpectedOutcomes(t *testing.T) {
	tally := newTally(&bytes.Buffer{})
	failure := errors.New("out of order")
	add := func(id string, p plannedEvent, kind reprise.EventKind, attempt int) {
		p.event, p.about = "index", id
		tally.expect(id, p)
		if kind != 0 {
			tally.Observe(reprise.Event{Kind: kind, MessageID: id, Attempt: attempt, Err: failure})
		}
	}
	add("as planned", plannedEvent{}, reprise.EventDone, 1)
	add("planned to fail", plannedEvent{parked: true, attempts: 5}, reprise.EventParked, 5)
	add("coalesced", plannedEvent{}, reprise.EventDebounced, 1)
	add("too many attempts", plannedEvent{}, reprise.EventDone, 2)
	add("parked", plannedEvent{}, reprise.EventParked, 1)
	add("done", plannedEvent{parked: true}, reprise.EventDone, 1)
	add("parked too early", plannedEvent{parked: true, attempts: 5}, reprise.EventParked, 1)
	add("unknown outcome", plannedEvent{}, 0, 0)
	var named []string
	for _, w := range tally.unplanned(map[string]int{"planned to fail": 5, "parked": 1, "parked too early": 1}) {
		about, _, _ := strings.Cut(strings.TrimPrefix(w, "index, "), ":")
		named = append(named, about)
	}
	slices.Sort(named)
	want := []string{"done", "parked", "parked too early", "too many attempts", "unknown outcome"}
	if !slices.Equal(named, want) {
		t.Errorf("unplanned outcomes: got %q, want %q", named, want)
	}
}

func TestTallyPrintsOneLinePerEvent(t *testing.T) {
	var out bytes.Buffer
	tally := newTally(&out)
	tally.expect("1", plannedEvent{event: "index", about: "Dummy"})
	long := errors.New("rejected:\n" + strings.Repeat("no, ", 100))
	tally.Observe(reprise.Event{Kind: reprise.EventRetried, MessageID: "1", Attempt: 1, Err: long})
	tally.Observe(reprise.Event{Kind: reprise.EventDone, MessageID: "1", Attempt: 2})
	tally.Observe(reprise.Event{Kind: reprise.EventDone, MessageID: "another's"})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "rejected: no, no,") || !strings.HasSuffix(lines[0], "…") || !strings.HasSuffix(lines[1], "done at attempt 2") {
		t.Errorf("output must have a truncated rejection and \"done at attempt 2\":\n%s", &out)
	}
	if n, _ := tally.unsettled(); n != 0 {
		t.Errorf("got %d unsettled messages, want 0", n)
	}
}
