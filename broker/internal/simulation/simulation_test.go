package simulation

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var (
	seed    = flag.Uint64("simulation.seed", 1, "the seed of the first life")
	verbose = flag.Bool("simulation.print", false, "print each script before its life")
	lives   = flag.Int("simulation.lives", 8, "the number of lives")
)

// Systems with faults keep the promises of the documents.
func TestLives(t *testing.T) {
	var all []*Result
	for i := range *lives {
		s := Draw(*seed + uint64(i))
		if *verbose {
			_ = s.Write(os.Stdout)
		}
		t.Run(fmt.Sprint(s.Seed), func(t *testing.T) {
			r := Play(t, s)
			all = append(all, r)
			report(t, r)
		})
	}
	total := make(map[string]int)
	for _, r := range all {
		for k, n := range r.Struck {
			total[k] += n
		}
	}
	for _, k := range slices.Sorted(maps.Keys(total)) {
		t.Logf("%6d %s", total[k], k)
	}
}

func report(t *testing.T, r *Result) {
	t.Helper()
	t.Logf("seed %d: %v in %v, %d messages", r.Script.Seed, r.Lasted, r.Took, r.Messages)
	seen := make(map[string]int)
	for _, v := range r.Broken {
		if seen[v.Promise]++; seen[v.Promise] <= 2 {
			t.Errorf("broken: %s\n\t%s", v.Promise, v.Detail)
		}
	}
	if len(r.Broken) > 0 {
		var b strings.Builder
		_ = r.Script.Write(&b)
		t.Logf("%s", b.String())
	}
}
