package simulation

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// standstill is the maximum real time during which virtual time may stop. After that, the life counts as blocked.
const standstill = 2 * time.Minute

// clock is the last recorded virtual time of the life.
var clock atomic.Int64

// watch exits the process if virtual time stops. The returned function stops the watch.
func watch(seed uint64) (stop func()) {
	ended := make(chan struct{})
	clock.Store(0)
	go func() {
		for last := int64(-1); ; {
			select {
			case <-ended:
				return
			case <-time.After(standstill):
			}
			if now := clock.Load(); now != last {
				last = now
				continue
			}
			fmt.Printf("broken: %s\n\tseed %d, at %v\n%s\n", promiseMoves, seed, time.Duration(clock.Load()), stacks())
			fmt.Printf("simulation: seed %d broke: %s\n", seed, promiseMoves)
			os.Exit(1)
		}
	}()
	return func() { close(ended) }
}

const promiseMoves = "virtual time advances"

const promiseEnd = "at the end of a life, no goroutine is running"

// Play plays a script in a new synctest bubble. Do not call it from a bubble.
func Play(t *testing.T, script Script) (r *Result) {
	began := time.Now()
	defer watch(script.Seed)()
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
			if v := recover(); v != nil { // the bubble can no longer exit
				panic(fmt.Sprintf("seed %d: %v\n%s", script.Seed, v, debug.Stack()))
			}
		}()
		r = live(script, dir)
	})
	return r
}

var inBubble = regexp.MustCompile(`^goroutine \d+ \[(.*, )?synctest bubble (\d+)[],]`)

// stacks returns the stack traces of the goroutines in the newest bubble. The goroutines that stop its clock come first.
func stacks() string {
	buf := make([]byte, 4<<20)
	var all []string
	newest := ""
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		m := inBubble.FindStringSubmatch(stack)
		if m == nil {
			continue
		}
		if len(m[2]) > len(newest) || len(m[2]) == len(newest) && m[2] > newest {
			all, newest = nil, m[2]
		}
		if m[2] == newest {
			all = append(all, strings.TrimSpace(stack))
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return !durable(all[i]) && durable(all[j]) })
	return strings.Join(all[:min(len(all), 30)], "\n\n")
}

func durable(stack string) bool {
	first, _, _ := strings.Cut(stack, "\n")
	return strings.Contains(first, "(durable)") && !strings.Contains(stack, "diskstore")
}
