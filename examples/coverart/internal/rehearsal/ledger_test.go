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

// The ledger balances if and only if each message is accounted for.
func TestLedgerBalancesWhenNothingIsMissing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tally := newTally(&bytes.Buffer{})
		found := map[string]int{}
		others := rapid.IntRange(0, 1).Draw(t, "consumers of others")
		missing := 0
		for i := range rapid.IntRange(0, 20).Draw(t, "messages") {
			id := fmt.Sprint(i)
			tally.expect(id, planned{event: "index"})
			switch rapid.SampledFrom([]string{"done", "equal", "parked", "moved to failed by hand", "gone after it was parked", "unknown"}).Draw(t, id) {
			case "done":
				tally.Observe(reprise.Event{Kind: reprise.EventDone, MessageID: id})
			case "equal":
				tally.Observe(reprise.Event{Kind: reprise.EventDebounced, MessageID: id})
			case "parked":
				tally.Observe(reprise.Event{Kind: reprise.EventParked, MessageID: id})
				found[id] = 1
			case "moved to failed by hand":
				found[id] = 1
			case "gone after it was parked":
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
			t.Fatalf("%+v balances: %v, with %d missing", l, l.balances(), missing)
		}
		var out bytes.Buffer
		l.write(&out)
		if strings.Contains(out.String(), "missing") != (missing > 0) {
			t.Fatalf("with %d missing:\n%s", missing, &out)
		}
	})
}

func TestUnplannedNamesWhatEndedOtherwise(t *testing.T) {
	tally := newTally(&bytes.Buffer{})
	failure := errors.New("out of order")
	add := func(id string, p planned, kind reprise.EventKind, attempt int) {
		p.event, p.about = "index", id
		tally.expect(id, p)
		if kind != 0 {
			tally.Observe(reprise.Event{Kind: kind, MessageID: id, Attempt: attempt, Err: failure})
		}
	}
	add("as planned", planned{}, reprise.EventDone, 1)
	add("planned to fail", planned{parked: true, attempts: 5}, reprise.EventParked, 5)
	add("joined another", planned{}, reprise.EventDebounced, 1)
	add("too many attempts", planned{}, reprise.EventDone, 2)
	add("parked", planned{}, reprise.EventParked, 1)
	add("done", planned{parked: true}, reprise.EventDone, 1)
	add("parked too early", planned{parked: true, attempts: 5}, reprise.EventParked, 1)
	add("nothing known", planned{}, 0, 0)
	var named []string
	for _, w := range tally.unplanned(map[string]int{"planned to fail": 5, "parked": 1, "parked too early": 1}) {
		about, _, _ := strings.Cut(strings.TrimPrefix(w, "index, "), ":")
		named = append(named, about)
	}
	slices.Sort(named)
	want := []string{"done", "nothing known", "parked", "parked too early", "too many attempts"}
	if !slices.Equal(named, want) {
		t.Errorf("named %q, want %q", named, want)
	}
}

func TestTallyTellsInOneLine(t *testing.T) {
	var out bytes.Buffer
	tally := newTally(&out)
	tally.expect("1", planned{event: "index", about: "Dummy"})
	long := errors.New("it said\n" + strings.Repeat("no, ", 100))
	tally.Observe(reprise.Event{Kind: reprise.EventRetried, MessageID: "1", Attempt: 1, Err: long})
	tally.Observe(reprise.Event{Kind: reprise.EventDone, MessageID: "1", Attempt: 2})
	tally.Observe(reprise.Event{Kind: reprise.EventDone, MessageID: "another's"})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "it said no, no,") || !strings.HasSuffix(lines[0], "…") || !strings.HasSuffix(lines[1], "done at attempt 2") {
		t.Errorf("told:\n%s", &out)
	}
	if n, _ := tally.unsettled(); n != 0 || tally.kinds[reprise.EventDone] != 1 {
		t.Errorf("%d unsettled, others: %v", n, tally.kinds)
	}
}
