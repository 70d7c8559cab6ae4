package report

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Others is the metric that says how many processors were used meanwhile by what is
// neither measured nor a part of the measuring.
const Others = "others_cpus"

// Tolerable is how many that may be: what idle brokers use, and the kernel in its
// own name.
const Tolerable = 0.15

// Interleave measures the contenders in turn, as often as asked: what disturbs the
// machine for a while disturbs all of them. One that fails is left out from then
// on, and that is said. The log gets a line for each round. Measure is told the
// contender's number; what it returns when ctx has ended is ignored.
func (t *Table) Interleave(ctx context.Context, rounds int, log io.Writer, measure func(i int) (Metrics, error)) error {
	for round := range rounds {
		for i, c := range t.Contenders {
			if c.Failed != "" {
				continue
			}
			m, err := measure(i)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				c.Failed = err.Error()
				t.Notes = append(t.Notes, fmt.Sprintf("%s failed in round %d: %v", c.Name, round+1, err))
				fmt.Fprintf(log, "%d  %-28s FAILED: %v\n", round+1, c.Name, err)
				continue
			}
			c.Add(m)
			fmt.Fprintf(log, "%d  %-28s %s\n", round+1, c.Name, brief(m))
		}
	}
	for _, c := range t.Contenders {
		if c.Median[Others] > Tolerable {
			t.Notes = append(t.Notes, fmt.Sprintf("NOT TO BE QUOTED: while %s was measured, something else used %.1f processors",
				c.Name, c.Median[Others]))
		}
	}
	return nil
}

// brief shows a round's metrics in a line.
func brief(m Metrics) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%s=%.5g ", key, m[key])
	}
	return b.String()
}
