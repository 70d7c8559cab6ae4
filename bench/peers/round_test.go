package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/reprisemq/reprise/bench/internal/report"
)

// compiled returns options for programs that it compiles.
func compiled(t *testing.T) options {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	o := options{root: root, bin: t.TempDir(), rounds: 1, messages: 200, concurrency: 8, wait: time.Second, soon: 200 * time.Millisecond}
	o.reprise = filepath.Join(o.bin, "command")
	for _, args := range [][]string{{"-o", o.bin + "/", "./reprise", "./loop"}, {"-C", root, "-o", o.reprise, "./cmd/reprise"}} {
		if out, err := exec.CommandContext(t.Context(), "go", append([]string{"build"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
	}
	return o
}

// Each step of a round returns its metrics, and no message is lost.
func TestRoundMeasuresEachStep(t *testing.T) {
	o := compiled(t)
	for _, name := range []string{"reprise", "loop"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := *find(peers(o), name)
			p.store = embedded
			m, failed, err := measure(t.Context(), o, &p, t.Output())
			if err != nil || len(failed) > 0 {
				t.Fatalf("round: got errors %v, %v", failed, err)
			}
			for _, table := range tables {
				for _, c := range table.columns {
					// On a slow machine, the first retries come before all messages have failed, so their memory is unknown.
					if _, ok := m[c.metric]; !ok && c.metric != waitWorker && c.metric != waitStore {
						t.Errorf("metric %s not found", c.metric)
					}
				}
			}
			if m[lost] != 0 || m[early] != 0 {
				t.Errorf("got %v lost messages and retries that were %v ms early, want none", m[lost], m[early])
			}
		})
	}
}

func TestLedgerCountsLostAndDuplicateMessages(t *testing.T) {
	l := &ledger{changed: make(chan struct{}, 1)}
	l.begin(10, []int{0, 1, 1, 0}) // the last two are not processed
	began := time.Now()
	for _, a := range []struct{ id, number, second int }{{10, 1, 0}, {10, 1, 1}, {11, 1, 0}, {11, 2, 5}, {12, 1, 0}, {9, 1, 0}} {
		l.add(a.id, attempt{a.number, began.Add(time.Duration(a.second) * time.Second)})
	}
	if l.done != 2 || l.handled != 3 || l.duplicates != 1 || l.reports != 5 || l.waiting() != 1 {
		t.Errorf("got %d done, %d handled, %d duplicates, %d reports, %d waiting; want 2, 3, 1, 5, 1", l.done, l.handled, l.duplicates, l.reports, l.waiting())
	}
	if late := l.lateness(3 * time.Second); len(late) != 1 || late[0] != 2*time.Second {
		t.Errorf("lateness: got %v, want 2s", late)
	}
	if err := l.await(context.Background(), 0, func() bool { return false }); err != errTimeout {
		t.Errorf("await: got %v, want errTimeout", err)
	}
}

// A peer is listed only if all its rounds are better.
func TestResultsListBetterPeers(t *testing.T) {
	contender := func(name string, rates ...float64) *report.Contender {
		c := &report.Contender{Name: name}
		for _, r := range rates {
			c.Add(report.Metrics{processRate: r, lateMedian: r})
		}
		return c
	}
	got := better(&report.Table{Contenders: []*report.Contender{contender("reprise", 1000, 2000), contender("fast", 2001, 3000), contender("similar", 1500, 3000)}})
	if len(got) != 1 || got[0] != "messages/s without failures (`reprise`: 1,500): fast (2,500)" {
		t.Errorf("got %q, want the peer fast", got)
	}
}
