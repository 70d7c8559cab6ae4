package simulation

import (
	"testing"
	"time"
)

func TestInOrderSortsRunsByDelivery(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		noted, later Run
		swapped      bool
	}{
		"redelivered later":                        {Run{Began: now}, Run{Began: now.Add(time.Second), Redelivered: true}, false},
		"redelivered at the same time":             {Run{Began: now}, Run{Began: now, Redelivered: true}, false},
		"first delivery recorded after the second": {Run{Began: now, Redelivered: true}, Run{Began: now}, true},
		"redelivered, then without the flag":       {Run{Began: now, Redelivered: true}, Run{Began: now.Add(time.Second)}, false},
		"both redelivered":                         {Run{Began: now, Redelivered: true}, Run{Began: now, Redelivered: true}, false},
	} {
		first, second := inOrder(&test.noted, &test.later)
		if swapped := first == &test.later && second == &test.noted; swapped != test.swapped {
			t.Errorf("%s: swapped: got %v, want %v", name, swapped, test.swapped)
		}
	}
}

// A crash can undo an acknowledgement that waits for the running commit and the next one. A later crash cannot.
func TestCrashUndoesAckUntilSecondCommit(t *testing.T) {
	settled := time.Now()
	for _, test := range []struct {
		fsync, crash time.Duration
		want         bool
	}{
		{0, 900 * time.Millisecond, true},
		{0, 1100 * time.Millisecond, false},
		{5 * time.Second, 8400 * time.Millisecond, true},
		{5 * time.Second, 11100 * time.Millisecond, false},
	} {
		l := &Life{Script: Script{Shape: Shape{Sync: test.fsync}}}
		at := settled.Add(test.crash)
		l.disturbances = []*Disturbance{{Who: brokerName, Why: "crash", From: at, To: at.Add(time.Second)}}
		if got := l.runDisturbed(&Run{process: t, Began: settled.Add(-time.Second), Settled: settled}); got != test.want {
			t.Errorf("fsync of %v, crash %v after the acknowledgement: disturbed %v, want %v", test.fsync, test.crash, got, test.want)
		}
	}
}
