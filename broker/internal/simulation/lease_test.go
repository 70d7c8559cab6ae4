package simulation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// leaseScript returns a script in which connections of workers with leases are cut and refused, and their processes crash and stop.
// Renewals take no time, so that a fault is not during a renewal.
func leaseScript(seed uint64) Script {
	random := rand.New(rand.NewPCG(seed, 2))
	w := Work{
		Design: leasesName, Name: leasesName, Attempts: 3, Workers: 2, Concurrency: 4,
		Delays: []time.Duration{time.Second, 10 * time.Second, time.Minute},
	}
	s := Script{Seed: seed, Shape: Shape{Horizon: time.Hour, Works: []Work{w, drawSteady()}}}
	for range 120 {
		step := Step{
			At: time.Duration(1 + random.Int64N(int64(s.Shape.Horizon))), Act: oneOf(random, "publish", "refuse", "refuse", "cut", "crash-worker", "stop-worker"),
			On: workerName(w, random.IntN(w.Workers)), N: random.IntN(2), For: between(random, time.Second, time.Minute), Seed: uint64(random.Uint32()),
		}
		if step.Act == "publish" {
			step.On, step.N, step.For = w.Name, 10, 2*time.Minute
		}
		s.Steps = append(s.Steps, step)
	}
	slices.SortFunc(s.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return s
}

func TestLeasesHaveOneHolder(t *testing.T) {
	for seed := range uint64(3) {
		r := playIn(t, fmt.Sprint(seed), leaseScript(seed))
		if n := r.Events["lease history"]; n < 50 {
			t.Errorf("checked the histories of %d messages, want at least 50", n)
		}
	}
}

// The check finds histories that break the promise, and only these.
func TestLeaseHistoryCheck(t *testing.T) {
	at := func(n int64) time.Time { return time.Unix(n, 0) }
	for name, test := range map[string]struct {
		runs  []*Run
		legal bool
	}{
		"one after the other":                       {[]*Run{{Began: at(1), Held: at(2), Ended: at(3)}, {Began: at(4), Held: at(5), Ended: at(6)}}, true},
		"begins while the lease is held":            {[]*Run{{Began: at(1), Held: at(2), Ended: at(5)}, {Began: at(3), Ended: at(4)}}, false},
		"two hold the lease":                        {[]*Run{{Began: at(1), Held: at(3), Ended: at(6)}, {Began: at(2), Held: at(4), Ended: at(5)}}, false},
		"continues without a lease":                 {[]*Run{{Began: at(1), Ended: at(5)}, {Began: at(2), Held: at(3), Ended: at(4)}}, true},
		"takes the lease after the other has ended": {[]*Run{{Began: at(1), Held: at(5), Ended: at(6)}, {Began: at(2), Held: at(3), Ended: at(4)}}, true},
		"begins before the lease is held":           {[]*Run{{Began: at(1), Held: at(4), Ended: at(5)}, {Began: at(2), Ended: at(3)}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if legal := porcupine.CheckOperations(oneHolder, leaseHistory(test.runs)); legal != test.legal {
				t.Errorf("got %v, want %v", legal, test.legal)
			}
		})
	}
}
