package report

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Others is the name of a metric: the average number of processors that unrelated processes used during a round.
const Others = "others_cpus"

// Tolerable is the highest acceptable value of Others. Idle brokers and kernel threads alone can cause values up to it.
const Tolerable = 0.15

// Interleave measures the contenders in turn, so that a temporary load on the machine affects all contenders. In each
// round, it calls measure with the index of each contender. If measure returns an error, Interleave omits this contender
// from further rounds and reports the error in the table. If ctx is done, Interleave discards the result of measure and
// returns. It writes a line to log for each measurement.
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

// brief formats the metrics of a round on one line.
func brief(m Metrics) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%s=%.5g ", key, m[key])
	}
	return b.String()
}
