package simulation

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

var archives = flag.Int("simulation.archives", 1, "the number of lives with an archive; -simulation.seed is the first")

// TestArchiveLives checks that archives, consoles, replays and ledgers keep the documented promises.
func TestArchiveLives(t *testing.T) {
	var total Total
	began := time.Now()
	for i := range *archives {
		s := Draw(archiveEvery * (*firstSeed + uint64(i)))
		total.Add(playIn(t, fmt.Sprint(s.Seed), s))
	}
	var b strings.Builder
	total.Write(&b, time.Since(began))
	t.Log(b.String())
}
