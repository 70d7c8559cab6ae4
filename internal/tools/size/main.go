// Size counts the project's Go code by package: files, lines, lines with code, exported names.
//
//	go run ./internal/tools/size              the working tree
//	go run ./internal/tools/size -base v1.0   and the difference from a git revision
//
// A code line has a token that is not a comment. Exported names count only in public packages. They are names at the
// top level, and methods and fields of exported types. Tests are _test.go files, and packages that exist only for
// tests or tools. Examples, benchmarks, testdata and generated files are not counted.
package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"text/tabwriter"
)

func main() {
	base := flag.String("base", "", "also print the difference from this git `revision`")
	flag.Parse()
	if err := run(os.Stdout, *base); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, base string) error {
	now, err := workingTree(".")
	if err != nil {
		return err
	}
	if base == "" {
		return write(out, now, nil)
	}
	before, err := revision(base)
	if err != nil {
		return err
	}
	return write(out, now, before)
}

var columns = []struct {
	name string
	of   func(s size) int
}{
	{"files", func(s size) int { return s.files }},
	{"lines", func(s size) int { return s.lines }},
	{"code", func(s size) int { return s.code }},
	{"exported", func(s size) int { return s.exported }},
	{"with members", func(s size) int { return s.exported + s.members }},
	{"test files", func(s size) int { return s.testFiles }},
	{"test lines", func(s size) int { return s.testLines }},
	{"test code", func(s size) int { return s.testCode }},
}

// write prints a row for each package, and a total. A number that has changed is followed by the difference.
func write(out io.Writer, now, before map[string]size) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range columns {
		fmt.Fprint(table, c.name, "\t")
		if before != nil {
			fmt.Fprint(table, "\t")
		}
	}
	fmt.Fprintln(table, "  package")
	row := func(name string, now, was size) {
		for _, c := range columns {
			fmt.Fprint(table, c.of(now), "\t")
			if before == nil {
				continue
			}
			if d := c.of(now) - c.of(was); d != 0 {
				fmt.Fprintf(table, "%+d", d)
			}
			fmt.Fprint(table, "\t")
		}
		fmt.Fprintf(table, "  %s\n", name)
	}
	before = followMoves(now, before)
	names := maps.Clone(now)
	maps.Copy(names, before)
	var all, were size
	for _, name := range slices.Sorted(maps.Keys(names)) {
		row(name, now[name], before[name])
		all, were = all.plus(now[name]), were.plus(before[name])
	}
	row("all "+strconv.Itoa(len(now))+" packages", all, were)
	if err := table.Flush(); err != nil || were.code == 0 {
		return err
	}
	_, err := fmt.Fprintf(out, "\nproduction: code lines %d, were %d (%+.1f %%); lines %d, were %d (%+.1f %%)\n",
		all.code, were.code, change(all.code, were.code), all.lines, were.lines, change(all.lines, were.lines))
	return err
}

// followMoves returns a copy of before in which moved packages have their new folders. The package of a removed folder
// has moved if exactly one new folder has the same base name.
func followMoves(now, before map[string]size) map[string]size {
	moved := make(map[string]size)
	for old, s := range before {
		moved[newFolder(old, now, before)] = s
	}
	return moved
}

func newFolder(old string, now, before map[string]size) string {
	if _, stays := now[old]; stays {
		return old
	}
	var candidates []string
	for folder := range now {
		if _, known := before[folder]; !known && path.Base(folder) == path.Base(old) {
			candidates = append(candidates, folder)
		}
	}
	if len(candidates) != 1 {
		return old
	}
	return candidates[0]
}

// change returns a difference in percent.
func change(now, was int) float64 { return 100 * float64(now-was) / float64(was) }
