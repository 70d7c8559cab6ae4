package demo

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func ids(numbers ...int) []string {
	var all []string
	for _, n := range numbers {
		all = append(all, fmt.Sprintf("demo-1-%d", n))
	}
	return all
}

func handled(all ...string) map[string]int {
	m := map[string]int{}
	for _, id := range all {
		m[id]++
	}
	return m
}

func TestBalance(t *testing.T) {
	tests := map[string]struct {
		a        accounts
		want     ledger
		balanced bool
	}{
		"all there": {
			accounts{confirmed: ids(1, 2, 3), handled: handled(ids(1)...), failed: []parkedMessage{{id: "demo-1-2"}}, waiting: ids(3)},
			ledger{in: 3, done: 1, failed: 1, waiting: 1},
			true,
		},
		"one is missing": {
			accounts{confirmed: ids(1, 2, 3), handled: handled(ids(1)...), waiting: ids(3)},
			ledger{in: 3, done: 1, waiting: 1, missing: ids(2)},
			false,
		},
		"a surplus does not hide what is missing": {
			accounts{confirmed: ids(1, 2), handled: handled("demo-1-1", "demo-1-1", "demo-1-9", "demo-1-9")},
			ledger{in: 2, done: 1, missing: ids(2), again: 2},
			false,
		},
		"handled twice": {
			accounts{confirmed: ids(1), handled: handled(ids(1, 1)...)},
			ledger{in: 1, done: 1, again: 1},
			true,
		},
		"handled, and in a queue again": {
			accounts{confirmed: ids(1, 2), handled: handled(ids(1, 2)...), failed: []parkedMessage{{id: "demo-1-1"}}, waiting: ids(2)},
			ledger{in: 2, failed: 1, waiting: 1},
			true,
		},
		"twice in the failed queue": {
			accounts{confirmed: ids(1), failed: []parkedMessage{{id: "demo-1-1"}, {id: "demo-1-1"}}},
			ledger{in: 1, failed: 1},
			true,
		},
		"a burst": {
			accounts{confirmed: ids(1, 2, 3), handled: handled(ids(3)...), debounced: map[string]bool{"demo-1-1": true, "demo-1-2": true, "demo-0-9": true}},
			ledger{in: 3, done: 3, burst: 2},
			true,
		},
		"of a burst, but delivered again": {
			accounts{
				confirmed: ids(1, 2, 3), handled: handled(ids(1, 3)...), failed: []parkedMessage{{id: "demo-1-2"}},
				debounced: map[string]bool{"demo-1-1": true, "demo-1-2": true},
			},
			ledger{in: 3, done: 2, failed: 1},
			true,
		},
		"unconfirmed, arrived": {
			accounts{confirmed: ids(1), unconfirmed: ids(2), handled: handled(ids(1, 2)...)},
			ledger{in: 2, done: 2, unconfirmed: 1},
			true,
		},
		"unconfirmed, did not arrive": {
			accounts{confirmed: ids(1), unconfirmed: ids(2), handled: handled(ids(1)...)},
			ledger{in: 1, done: 1, refused: 1},
			true,
		},
		"nothing": {accounts{}, ledger{}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.a.prefix = "demo-1-"
			got := tt.a.balance()
			got.reasons = nil
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", tt.want) || got.balanced() != tt.balanced {
				t.Errorf("got  %+v balanced %v\nwant %+v balanced %v", got, got.balanced(), tt.want, tt.balanced)
			}
		})
	}
}

func TestReasonsGroupErrors(t *testing.T) {
	const gid = "76df3287-6cda-33eb-8e9a-044b5e15ffdd"
	got := reasonsOf([]parkedMessage{
		{errors: []string{"first", "503: PUT mbid-" + gid + "/x"}},
		{errors: []string{"503: PUT mbid-" + gid + "/x"}},
		{errors: []string{"no such thing\nstack"}},
		{},
	})
	want := []reason{
		{"503: PUT mbid-76df3287…/x", 2, 2},
		{"(no recorded error)", 1, 0},
		{"no such thing", 1, 1},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func ledgerText(l ledger, o Options, width int) string {
	var out strings.Builder
	for _, line := range ledgerLines(l, o, width) {
		out.WriteString(line.render(width, false) + "\n")
	}
	return out.String()
}

func TestLedgerText(t *testing.T) {
	golden(t, "ledger.txt", ledgerText(ledger{
		in: 60, done: 56, burst: 11, failed: 3, waiting: 1, again: 1, unconfirmed: 1, refused: 1,
		reasons: []reason{
			{"503 SlowDown: PUT mbid-27dd50ed…/index.json: Please reduce your request rate.", 2, 5},
			{"delete event: body must have the lines id, gid: got 1 line", 1, 1},
		},
	}, Options{Once: true, Seed: 7}, 79))
	golden(t, "ledger-missing.txt", ledgerText(ledger{
		in: 60, done: 45, failed: 3, missing: ids(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
	}, Options{BrokerURL: "amqp://localhost", Seed: 7}, 79))
}
