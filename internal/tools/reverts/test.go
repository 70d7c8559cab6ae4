package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// testAll runs the tests of each fault, first without the fault. It returns an error that lists all faults with an
// unexpected result.
func (r *run) testAll(ctx context.Context, out io.Writer, all []patch) error {
	fmt.Fprintln(out, "| fault | test | result |\n|---|---|---|")
	passed := make(map[string]results) // by test
	var wrong []error
	for _, p := range all {
		for _, test := range p.tests {
			if passed[test] == nil {
				before, err := r.test(ctx, test)
				if err == nil {
					err = before.allPassed()
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					wrong = append(wrong, fmt.Errorf("without a fault: %s: %w", test, err))
					continue
				}
				passed[test] = before
			}
			var found string
			err := r.with(p, func() error {
				after, err := r.test(ctx, test)
				found = after.newlyFailed(passed[test])
				return err
			})
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				wrong = append(wrong, fmt.Errorf("%s: %s: %w", p.name, test, err))
			case found == "" && p.survives == "":
				wrong = append(wrong, fmt.Errorf("%s: survived %s: %s", p.name, test, p.about))
			case found != "" && p.survives != "":
				wrong = append(wrong, fmt.Errorf("%s: %s fails (remove the line %q)", p.name, found, survivesLine+p.survives))
			}
			fmt.Fprintf(out, "| %s | `%s` | %s |\n", p.name, test, describe(p, found, err))
		}
	}
	return errors.Join(wrong...)
}

func describe(p patch, found string, err error) string {
	switch {
	case err != nil:
		return "error"
	case found != "":
		return found + " fails"
	case p.survives != "":
		return "survives: " + p.survives
	default:
		return "survives, and must not"
	}
}

// results contains the result of each test by name: pass, fail or skip, or run for a test in a process that exited.
type results map[string]string

// allPassed returns an error unless at least one test passed and none failed.
func (r results) allPassed() error {
	if failed := r.failed(); len(failed) > 0 {
		return fmt.Errorf("%s fails", strings.Join(failed, ", "))
	}
	if !slices.Contains(slices.Collect(maps.Values(r)), "pass") {
		return errors.New("no test passed")
	}
	return nil
}

// failed returns the names of all tests that failed.
func (r results) failed() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(r)) {
		if r[name] == "fail" || r[name] == "run" {
			names = append(names, name)
		}
	}
	return names
}

// newlyFailed returns the name of a failed test that passed before. It returns an empty string if no such test exists.
func (r results) newlyFailed(before results) string {
	for _, name := range r.failed() {
		if before[name] == "pass" {
			return name
		}
	}
	return ""
}

// test runs go test with the arguments in test. It returns an error if go test failed for another reason than a test.
func (r *run) test(ctx context.Context, test string) (results, error) {
	output, err := r.goTest(ctx, append([]string{"-json", "-vet=off", "-timeout", "5m"}, strings.Fields(test)...)...)
	all := make(results)
	built := true
	for line := range bytes.Lines(output) {
		var e struct{ Action, Test string }
		if json.Unmarshal(line, &e) != nil {
			continue // the go command itself reports an error
		}
		switch {
		case e.Action == "build-fail":
			built = false
		case e.Test != "" && slices.Contains([]string{"run", "pass", "fail", "skip"}, e.Action):
			all[e.Test] = e.Action
		}
	}
	if err != nil && (!built || len(all.failed()) == 0) {
		return nil, fmt.Errorf("cannot test: %w\n%s", err, output)
	}
	return all, nil
}
