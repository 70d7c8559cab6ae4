package testkit

import (
	"flag"
	"testing"
)

// Waiting is a testing.M that runs 4 parallel tests at a time, or 8 with -short, unless -parallel is set. Use it in the
// TestMain of packages whose tests mostly wait for brokers, processes and timers.
type Waiting struct{ *testing.M }

// Run runs the tests.
func (w Waiting) Run() int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		tests := "4"
		if testing.Short() {
			tests = "8"
		}
		if err := flag.Set("test.parallel", tests); err != nil {
			panic(err)
		}
	}
	return w.M.Run()
}
