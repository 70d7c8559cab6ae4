// Reverts reintroduces old faults, one at a time, in a copy of the tree, and reports which of them the simulation
// finds:
//
//	go run ./internal/tools/reverts               100 lives for each fault, as a table in Markdown
//	go run ./internal/tools/reverts -only 03,08   some of them
//	go run ./internal/tools/reverts -tests        runs the tests that the patches name, which must fail
//
// The first row of the table is the unchanged tree. The patches are in broker/internal/simulation/reverts.
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
	flag.StringVar(&r.only, "only", "", "`names` of patches, or what they begin with, with commas in between")
	flag.BoolVar(&r.tests, "tests", false, "run the tests that the patches name instead")
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
	if r.dir, err = os.MkdirTemp("", "reverts"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.dir)) }()
	if err := copyTree(r.dir, "."); err != nil {
		return err
	}
	try := r.simulate
	if r.tests {
		try = r.test
		fmt.Fprintln(out, "| fault | test | result |\n|---|---|---|")
	} else {
		fmt.Fprintln(out, "| fault | lives until caught | promise that was broken |\n|---|--:|---|")
		if err := try(ctx, out, patch{name: "none"}); err != nil {
			return err
		}
	}
	for _, p := range all {
		if !r.wants(p.name) {
			continue
		}
		if err := r.with(p, func() error { return try(ctx, out, p) }); err != nil {
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

// test runs the tests that a patch names.
func (r *run) test(ctx context.Context, out io.Writer, p patch) error {
	for _, test := range p.tests {
		output, err := r.goTest(ctx, append([]string{"-timeout", "10m"}, strings.Fields(test)...)...)
		result := "passes, and should fail"
		switch failed := strings.Contains(string(output), "--- FAIL: "); {
		case ctx.Err() != nil:
			return ctx.Err()
		case failed:
			result = "fails"
		case err != nil:
			return fmt.Errorf("%s: %w\n%s", p.name, err, output)
		}
		fmt.Fprintf(out, "| %s | `%s` | %s |\n", p.name, test, result)
	}
	return nil
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
