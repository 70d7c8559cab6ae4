package simulation

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// standstill is the real time after which a life is taken for one that does not go on.
const standstill = 40 * time.Second

// clock is the virtual time of the life, as far as it is known.
var clock atomic.Int64

const promiseMoves = "nothing spins or waits for a lock for ever: virtual time goes on"

const promiseEnd = "whoever ends something waits for its goroutines: none is left at the end"

// Play plays a script in a bubble of its own. It must not be called in one.
func Play(t *testing.T, script Script) (r *Result) {
	began := time.Now()
	dog := time.AfterFunc(standstill, func() {
		fmt.Printf("broken: %s\n\tseed %d, at %v\n%s\n", promiseMoves, script.Seed, time.Duration(clock.Load()), stacks())
		fmt.Printf("simulation: failed: seed %d: %s\n", script.Seed, promiseMoves)
		os.Exit(1)
	})
	defer dog.Stop()
	defer func() {
		if v := recover(); v != nil {
			if err, ok := v.(error); !ok || !strings.HasPrefix(err.Error(), "deadlock: ") {
				panic(v)
			}
			if r == nil {
				r = &Result{Script: script}
			}
			if !r.Leaks {
				r.Broken = append(r.Broken, Violation{promiseEnd, fmt.Sprintf("%v\n%s", v, stacks())})
			}
		}
		r.Took = time.Since(began)
	}()
	dir := t.TempDir()
	synctest.Test(t, func(*testing.T) {
		defer func() {
			if v := recover(); v != nil { // the bubble could not end any more
				panic(fmt.Sprintf("seed %d: %v\n%s", script.Seed, v, debug.Stack()))
			}
		}()
		r = live(script, dir)
	})
	return r
}
