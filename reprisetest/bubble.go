package reprisetest

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
)

// inBubble reports whether the caller is in a bubble of testing/synctest.
func inBubble() (in bool) {
	defer func() {
		if v := recover(); v != nil {
			in = fmt.Sprint(v) != "goroutine is not in a bubble" // other panics mean that another goroutine is waiting
		}
	}()
	synctest.Wait()
	return true
}

var bubbleOf = regexp.MustCompile(`^goroutine \d+ \[(.*, )?synctest bubble (\d+)[],]`)

// bubble returns the number of the caller's bubble, from its stack trace.
func bubble() string {
	buf := make([]byte, 1<<10)
	if m := bubbleOf.FindSubmatch(buf[:runtime.Stack(buf, false)]); m != nil {
		return string(m[2])
	}
	return ""
}

// stacks returns the stacks of the goroutines in a bubble. It omits the goroutine that created the bubble.
func stacks(number string) (all []string) {
	buf := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		m := bubbleOf.FindStringSubmatch(stack)
		if m != nil && m[2] == number && !strings.HasPrefix(m[1], "synctest.Run") {
			all = append(all, strings.TrimSpace(stack))
		}
	}
	return all
}

// reportStuck fails the test if stuck is the panic that reports a deadlock in the bubble. Otherwise it repeats the
// panic.
func reportStuck(t *testing.T, b *Broker, stuck any) {
	t.Helper()
	if err, ok := stuck.(error); !ok || !strings.HasPrefix(err.Error(), "deadlock: ") || b == nil {
		panic(stuck)
	}
	what := "goroutines remain at the end of the test (close the clients that the test has dialed; handlers must return when their context is canceled)"
	if b.limitExceeded.Load() {
		what = fmt.Sprintf("test timed out after %s of virtual time (Config.Limit); it waits for an event that does not occur", b.config.Limit)
		what += "\n\nevents (times since the start):\n" + b.events.String()
	}
	t.Errorf("reprisetest: %s\n\n%s", what, strings.Join(stacks(b.bubble), "\n\n"))
}
