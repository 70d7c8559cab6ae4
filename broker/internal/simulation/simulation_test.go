package simulation

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	firstSeed  = flag.Uint64("simulation.seed", 1, "the seed of the first life")
	lives      = flag.Int("simulation.lives", 0, "the number of lives; 0: as many as the short form of the tests has")
	forTime    = flag.Duration("simulation.for", 0, "run lives on all processors for so long")
	scriptFile = flag.String("simulation.script", "", "play the script in this file")
	keep       = flag.String("simulation.keep", "", "play these steps of the seed's script only, such as 0,3,17")
	tries      = flag.Int("simulation.tries", 1, "play the script so many times, until it fails")
	shrinks    = flag.Bool("simulation.shrink", true, "shorten the script of a life that has failed")
	results    = flag.String("simulation.results", "", "append the results to this file as JSON Lines")
	logs       = flag.Bool("simulation.log", false, "print what brokers and workers log")
	designed   = flag.String("simulation.designs", "", "use these designs only, such as order,lanes")
	printing   = flag.Bool("simulation.print", false, "print each script before its life")
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, line := range last {
		fmt.Println(line)
	}
	os.Exit(code)
}

// last contains the lines at the end of a test run.
var last []string

// TestLives checks that systems with faults keep the documented promises.
func TestLives(t *testing.T) {
	Logs = *logs
	if *designed != "" {
		Only = strings.Split(*designed, ",")
	}
	switch {
	case *forTime > 0:
		conduct(t)
	case *scriptFile != "":
		playFile(t)
	case *keep != "":
		playKept(t)
	default:
		playSeeds(t)
	}
}

func playSeeds(t *testing.T) {
	n := *lives
	switch {
	case n > 0:
	case testing.Short():
		n = 2
	default:
		n = 4
	}
	var total Total
	began := time.Now()
	for i := range n {
		s := Draw(*firstSeed + uint64(i))
		r := playIn(t, fmt.Sprint(s.Seed), s)
		total.Add(r)
		if len(r.Broken) > 0 && *shrinks && *results == "" && len(total.Failed) == 1 {
			shorten(t, r)
		}
	}
	if *results == "" {
		var b strings.Builder
		total.Write(&b, time.Since(began))
		t.Log(b.String())
	}
}

// playIn plays a script in a subtest. The subtest fails if a promise is broken.
func playIn(t *testing.T, name string, s Script) (r *Result) {
	if *printing {
		_ = s.Write(os.Stdout)
	}
	t.Run(name, func(t *testing.T) {
		r = Play(t, s)
		save(t, r)
		if len(r.Broken) > 0 {
			t.Error(r.Report())
			last = append(last, fmt.Sprintf("simulation: seed %d broke: %s", s.Seed, strings.Join(r.Promises(), "; ")))
		}
	})
	return r
}

func save(t *testing.T, r *Result) {
	if *results == "" {
		return
	}
	f, err := os.OpenFile(*results, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := json.NewEncoder(f).Encode(r); err != nil {
		t.Fatal(err)
	}
}

func playFile(t *testing.T) {
	f, err := os.Open(*scriptFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := ReadScript(f)
	if err != nil {
		t.Fatalf("cannot read script %s: %v", *scriptFile, err)
	}
	for i := range *tries {
		if r := playIn(t, fmt.Sprint("try ", i+1), s); len(r.Broken) > 0 {
			return
		}
	}
}

func playKept(t *testing.T) {
	var numbers []int
	for text := range strings.SplitSeq(*keep, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	s, err := Draw(*firstSeed).Keep(numbers)
	if err != nil {
		t.Fatal(err)
	}
	for i := range *tries {
		if r := playIn(t, fmt.Sprint("try ", i+1), s); len(r.Broken) > 0 {
			return
		}
	}
}

// ReadScript returns the script that Write has written.
func TestReadScriptReturnsWrittenScript(t *testing.T) {
	for seed := range uint64(20) {
		s := Draw(seed)
		var written, again strings.Builder
		if err := s.Write(&written); err != nil {
			t.Fatal(err)
		}
		read, err := ReadScript(strings.NewReader(written.String()))
		if err != nil {
			t.Fatal(err)
		}
		if err := read.Write(&again); err != nil || again.String() != written.String() {
			t.Fatalf("script after ReadScript: %v, got:\n%s\nwant:\n%s", err, again.String(), written.String())
		}
	}
}

// Shrink keeps exactly the required steps.
func TestShrinkKeepsRequiredSteps(t *testing.T) {
	s := Draw(3)
	first, second := s.Steps[2], s.Steps[len(s.Steps)-3]
	got := Shrink(s, 1000, func(c Script) bool {
		found := 0
		for _, step := range c.Steps {
			if step == first || step == second {
				found++
			}
		}
		return found == 2
	})
	if len(got.Steps) != 2 || got.Steps[0] != first || got.Steps[1] != second {
		t.Errorf("got the steps %v of %d, want 2", got.Steps, len(s.Steps))
	}
}
