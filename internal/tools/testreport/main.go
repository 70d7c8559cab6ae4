// Testreport reads what `go test -json` says and shows what a person wants to
// see of it: a line per package as each ends, under it the whole output of the
// tests that failed in it, and at the end the names of all that failed or were
// skipped.
//
//	go test -json ./... | go run ./internal/tools/testreport
//
//	ok    backoff           0.02s    31 tests
//	FAIL  internal/queue    1.20s   112 tests, 1 failed
//	=== RUN   TestExpire
//	    expire_test.go:40: …
//	-     cmd/reprise       no tests
//
//	1 failed:
//	  internal/queue TestExpire
//	143 tests in 2 packages in 3.4s: 1 failed, 0 skipped
//
// It exits 1 when a test, a package or a build failed, when something was cut
// short, when a test was skipped, and when there was no test at all: all of
// these look like success in a log that nobody reads to its end.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// These end the tests; what was said until then is still to be shown.
	signal.Ignore(os.Interrupt, syscall.SIGQUIT)
	r := newReport(os.Stdout)
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	if !r.finish() {
		os.Exit(1)
	}
}
