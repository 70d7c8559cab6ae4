package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// portion is the number of lives per process. It is small, because a life whose disk has failed leaves goroutines and
	// memory behind.
	portion = 10
	// shrinkCalls and shrinkTime limit the effort to shorten one script.
	shrinkCalls = 60
	shrinkTime  = 3 * time.Minute
	// shrunk is the maximum number of broken promises for which a script is shortened.
	shrunk = 4
)

// conduct plays lives with consecutive seeds in child processes, on all processors, until the time limit.
func conduct(t *testing.T) {
	began := time.Now()
	var (
		mu    sync.Mutex
		next  = *firstSeed
		total Total
		all   sync.WaitGroup
	)
	for range runtime.NumCPU() {
		all.Go(func() {
			for time.Since(began) < *forTime {
				mu.Lock()
				seed := next
				next += portion
				mu.Unlock()
				for _, r := range livesOf(t, seed, portion) {
					mu.Lock()
					total.Add(r)
					if len(r.Broken) > 0 {
						fmt.Printf("simulation: seed %d broke: %s\n", r.Script.Seed, strings.Join(r.Promises(), "; "))
					}
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	real := time.Since(began)
	var seen []string
	for _, r := range total.Failed {
		t.Error(r.Report())
		last = append(last, fmt.Sprintf("simulation: seed %d broke: %s", r.Script.Seed, strings.Join(r.Promises(), "; ")))
		if promise := r.Promises()[0]; *shrinks && !slices.Contains(seen, promise) && len(seen) < shrunk {
			seen = append(seen, promise)
			shorten(t, r)
		}
	}
	total.Write(os.Stdout, real)
}

// livesOf plays n lives in a child process. If the process crashes, livesOf records the crash as a violation and plays the
// next lives in a new process.
func livesOf(t *testing.T, seed uint64, n int) (all []*Result) {
	file := filepath.Join(t.TempDir(), fmt.Sprint("results-", seed))
	for len(all) < n {
		output := child(t, 10*time.Minute, "-simulation.seed", fmt.Sprint(seed+uint64(len(all))), "-simulation.lives", fmt.Sprint(n-len(all)), "-simulation.results", file)
		all = readResults(t, file)
		if len(all) < n { // the process crashed in the next life
			s := Draw(seed + uint64(len(all)))
			r := &Result{Script: s, Broken: []Violation{crashViolation(output)}}
			save := append(all, r)
			f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.NewEncoder(f).Encode(r); err != nil {
				t.Error(err)
			}
			_ = f.Close()
			all = save
		}
	}
	return all
}

const promiseLives = "no process exits unexpectedly or panics"

// crashViolation returns the violation of a process that crashed or stopped making progress.
func crashViolation(output string) Violation {
	promise := promiseLives
	if strings.Contains(output, promiseMoves) {
		promise = promiseMoves
	}
	const most = 8000
	if i := strings.Index(output, "panic: "); i >= 0 {
		output = output[i:]
	}
	return Violation{promise, output[:min(len(output), most)]}
}

func readResults(t *testing.T, file string) (all []*Result) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil // the child has written no results
	}
	for d := json.NewDecoder(bytes.NewReader(data)); d.More(); {
		r := new(Result)
		if err := d.Decode(r); err != nil {
			t.Errorf("cannot decode results: %v", err)
			return all
		}
		all = append(all, r)
	}
	return all
}

// child runs the test in another process and returns its output.
func child(t *testing.T, within time.Duration, args ...string) string {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	c := exec.CommandContext(ctx, exe, append([]string{"-test.run", "^TestLives$", "-test.timeout", "0", "-simulation.designs", *designed}, args...)...)
	c.Dir = t.TempDir()
	output := new(bytes.Buffer)
	c.Stdout, c.Stderr = output, output
	_ = c.Run() // the results file contains the outcome
	return output.String()
}

// shorten prints the shortest script that still breaks the first broken promise of a life.
func shorten(t *testing.T, r *Result) {
	promise := r.Promises()[0]
	began := time.Now()
	n := 0
	fails := func(s Script) bool {
		if time.Since(began) > shrinkTime {
			return false
		}
		n++
		file, results := filepath.Join(t.TempDir(), fmt.Sprint("script-", n)), filepath.Join(t.TempDir(), fmt.Sprint("results-", n))
		var b strings.Builder
		if err := s.Write(&b); err != nil {
			t.Error(err)
			return false
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Error(err)
			return false
		}
		output := child(t, 5*time.Minute, "-simulation.script", file, "-simulation.tries", "3", "-simulation.results", results)
		for _, again := range readResults(t, results) {
			if slices.Contains(again.Promises(), promise) {
				return true
			}
		}
		return strings.Contains(output, promiseMoves) && promise == promiseMoves || strings.Contains(output, "panic: ") && promise == promiseLives
	}
	s := r.Script
	if !fails(s) {
		t.Logf("seed %d: cannot reproduce in 3 tries: %s", s.Seed, promise)
	} else {
		s = Shrink(s, shrinkCalls, fails)
	}
	var b strings.Builder
	_ = s.Write(&b)
	file := filepath.Join(os.TempDir(), fmt.Sprintf("simulation-%d.script", s.Seed))
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Error(err)
	}
	t.Logf("%d of %d steps reproduce: %s\n\n%s\nReproduce with go test ./broker/internal/simulation -run TestLives -count=1 -v -timeout 0 -simulation.tries 10 -simulation.script %s",
		len(s.Steps), len(r.Script.Steps), promise, b.String(), file)
}
