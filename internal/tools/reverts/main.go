// Reverts adds faults, one at a time, to a copy of the tree, and reports which of them the simulation or the tests find:
//
//	make simulate-reverts                             100 lives for each old fault, as a table in Markdown
//	make simulate-reverts ARGS='-only 03,08'          some of them
//	make simulate-reverts ARGS='-tests'               runs the tests that must find each old fault and each sabotage
//	make simulate-reverts ARGS='-tests -only queue/'  some of them
//
// The first row of the table of lives is the unchanged tree. With -tests, each test first runs on the unchanged tree, where
// it must pass. A fault is found if a test fails that passed before. The command exits with status 1 if a fault is not found.
//
// The old faults are in broker/internal/simulation/reverts, the sabotages in internal/tools/reverts/sabotages.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

func main() {
	var r run
	flag.IntVar(&r.lives, "lives", 100, "the most `lives` for each fault")
	flag.Uint64Var(&r.seed, "seed", 1, "`seed` of the first life")
	flag.StringVar(&r.only, "only", "", "`prefixes` of the names of faults, separated by commas")
	flag.BoolVar(&r.tests, "tests", false, "run the tests that must find each fault instead, also for sabotages")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := r.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "reverts:", err)
		stop()
		os.Exit(1)
	}
}

type run struct {
	lives int
	seed  uint64
	only  string
	tests bool

	dir string // directory of the copy
}

func (r *run) run(ctx context.Context, out io.Writer) (err error) {
	all, err := readPatches(os.DirFS("."))
	if err != nil {
		return err
	}
	if r.tests {
		sabotages, err := readSabotages(os.DirFS("."))
		if err != nil {
			return err
		}
		all = append(all, sabotages...)
	}
	all = slices.DeleteFunc(all, func(p patch) bool { return !r.wants(p.name) })
	if r.dir, err = os.MkdirTemp("", "reverts"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	if err := copyTree(r.dir, "."); err != nil {
		return err
	}
	if r.tests {
		return r.testAll(ctx, out, all)
	}
	fmt.Fprintln(out, "| fault | lives until caught | promise that was broken |\n|---|--:|---|")
	if err := r.simulate(ctx, out, patch{name: "none"}); err != nil {
		return err
	}
	for _, p := range all {
		if err := r.with(p, func() error { return r.simulate(ctx, out, p) }); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) wants(name string) bool {
	return r.only == "" || slices.ContainsFunc(strings.Split(r.only, ","), func(s string) bool { return strings.HasPrefix(name, s) })
}

// with applies p to the copy, calls do, and restores the copy.
func (r *run) with(p patch, do func() error) (err error) {
	changed, err := p.apply(os.DirFS(r.dir))
	if err != nil {
		return err
	}
	for name, content := range changed {
		path := filepath.Join(r.dir, name)
		before, readErr := os.ReadFile(path)
		if readErr != nil {
			return readErr
		}
		defer func() { err = errors.Join(err, os.WriteFile(path, before, 0o600)) }()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return do()
}

func (r *run) goTest(ctx context.Context, args ...string) (output []byte, err error) {
	c := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1"}, args...)...)
	c.Dir = r.dir
	output, err = c.CombinedOutput()
	if ctx.Err() != nil {
		return output, ctx.Err()
	}
	return output, err
}

// portion is the maximum number of lives that one process of the simulation runs.
const portion = 5

// life is a line of the results of the simulation.
type life struct {
	Script struct{ Seed uint64 }
	Broken []struct{ Promise string }
}

// simulate runs lives until one breaks a promise, or until it has run r.lives of them.
func (r *run) simulate(ctx context.Context, out io.Writer, p patch) error {
	results := filepath.Join(r.dir, "results-"+p.name)
	for lived := 0; lived < r.lives; {
		n := min(portion, r.lives-lived)
		output, err := r.goTest(ctx, "./broker/internal/simulation", "-timeout", "30m", "-run", "^TestLives$", "-simulation.shrink=false",
			"-simulation.seed", fmt.Sprint(r.seed+uint64(lived)), "-simulation.lives", fmt.Sprint(n), "-simulation.results", results)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		all, readErr := readLives(results)
		if readErr != nil {
			return readErr
		}
		for i, l := range all[min(lived, len(all)):] {
			if len(l.Broken) > 0 {
				fmt.Fprintf(out, "| %s | %d | %s |\n", p.name, lived+i+1, promises(l))
				return nil
			}
		}
		if before := lived; len(all) < before+n { // the process exited before it completed all lives
			match := exitReason.FindSubmatch(output)
			if match == nil {
				return fmt.Errorf("%s: %w\n%s", p.name, err, output)
			}
			fmt.Fprintf(out, "| %s | %d | %s |\n", p.name, len(all)+1, match[1])
			return nil
		}
		lived += n
	}
	fmt.Fprintf(out, "| %s | none of %d | |\n", p.name, r.lives)
	return nil
}

// exitReason matches the reason for an early exit of the simulation.
var exitReason = regexp.MustCompile(`(?m)^((?:simulation: seed \d+ broke|panic|fatal error): .*)$`)

func promises(l life) string {
	var all []string
	for _, b := range l.Broken {
		if !slices.Contains(all, b.Promise) {
			all = append(all, b.Promise)
		}
	}
	return strings.ReplaceAll(strings.Join(all, "; "), "|", `\|`)
}

func readLives(name string) (all []life, err error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var l life
		switch err := d.Decode(&l); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, l)
	}
}
