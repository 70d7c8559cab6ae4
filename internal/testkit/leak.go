package testkit

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Main runs the tests of a package, and exits. A run whose tests pass fails if a goroutine outlives the tests by more than
// five seconds. Use it in TestMain.
func Main(m interface{ Run() int }) {
	code := m.Run()
	if code == 0 {
		if left := leaked(5 * time.Second); len(left) > 0 {
			fmt.Fprintf(os.Stderr, "%d goroutines outlive the tests:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
			code = 1
		}
	}
	os.Exit(code)
}

// leaked returns the stacks of other goroutines that have not ended after the timeout.
func leaked(timeout time.Duration) []string {
	for deadline := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		if left := others(); len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// others returns the stacks of all goroutines except the current goroutine and those of the runtime, which do not end.
func others() []string {
	stacks := make([]byte, 1<<20)
	for {
		n := runtime.Stack(stacks, true)
		if n < len(stacks) {
			stacks = stacks[:n]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	all := strings.Split(strings.TrimSpace(string(stacks)), "\n\n")[1:]
	return slices.DeleteFunc(all, func(stack string) bool {
		_, state, _ := strings.Cut(stack, "[")
		return strings.HasPrefix(state, "syscall") || strings.Contains(stack, "runtime.ensureSigM") // package os/signal
	})
}
