// Testreport reads the output of `go test -json`. It prints a line when a package finishes, followed by the complete
// output of its failed tests. At the end it prints the names of all failed and skipped tests.
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
// It exits with status 1 if a test, a package or a build failed, if the input is truncated, if a test was skipped, or
// if no test ran. In a long log, each of these cases could otherwise be mistaken for a success.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// The tests also receive these signals, and terminate. The report must still print their output.
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
