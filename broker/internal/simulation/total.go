package simulation

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Total is the sum of the results of many lives.
type Total struct {
	Lives, Steps, Messages int
	Lasted                 time.Duration // virtual
	Took                   time.Duration // real time, summed over all processors
	Events                 map[string]int
	Failed                 []*Result // lives with at least one broken promise
}

// Add adds the result of a life.
func (t *Total) Add(r *Result) {
	t.Lives++
	t.Steps += len(r.Script.Steps)
	t.Messages += r.Messages
	t.Lasted += r.Lasted
	t.Took += r.Took
	if t.Events == nil {
		t.Events = make(map[string]int)
	}
	for k, n := range r.Events {
		t.Events[k] += n
	}
	if len(r.Broken) > 0 {
		t.Failed = append(t.Failed, r)
	}
}

// Never returns the acts with a positive weight that had no effect in any life.
func (t *Total) Never() (names []string) {
	for _, a := range Acts() {
		if a.Weight > 0 && t.Events[a.Name] == 0 {
			names = append(names, a.Name)
		}
	}
	return names
}

// Write writes a table of the totals. The argument real is the elapsed real time.
func (t *Total) Write(w io.Writer, real time.Duration) {
	fmt.Fprintf(w, "%d lives, %d steps, %d messages, %.1f days in %v: %.0f days per hour\n",
		t.Lives, t.Steps, t.Messages, t.Lasted.Hours()/24, real.Round(time.Second), (t.Lasted.Hours()/24)/max(real.Hours(), 1e-9))
	for _, fault := range []bool{true, false} {
		if fault {
			fmt.Fprintln(w, "faults:")
		} else {
			fmt.Fprintln(w, "acts and their results:")
		}
		for _, k := range slices.Sorted(maps.Keys(t.Events)) {
			if a := acts[k]; a.Fault == fault {
				fmt.Fprintf(w, "%9d %s\n", t.Events[k], k)
			}
		}
	}
	if never := t.Never(); len(never) > 0 {
		fmt.Fprintf(w, "never: %s\n", strings.Join(never, ", "))
	}
}

// Promises returns the broken promises of a life, without duplicates.
func (r *Result) Promises() (all []string) {
	for _, v := range r.Broken {
		if !slices.Contains(all, v.Promise) {
			all = append(all, v.Promise)
		}
	}
	return all
}

// Report describes the violations of a life.
func (r *Result) Report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %v of virtual time, %d messages\n", r.Script.Seed, r.Lasted, r.Messages)
	for _, promise := range r.Promises() {
		n := 0
		for _, v := range r.Broken {
			if v.Promise == promise {
				if n++; n == 1 {
					fmt.Fprintf(&b, "broken: %s\n\t%s\n", promise, v.Detail)
				}
			}
		}
		if n > 1 {
			fmt.Fprintf(&b, "\t(and %d more times)\n", n-1)
		}
	}
	return b.String()
}
