// Prose checks the English of documents, comments, names of tests, messages and console templates against docs/style.md.
//
//	go run ./internal/tools/prose                     all packages and documents, as a table
//	go run ./internal/tools/prose ./broker/...        some packages or documents, with each finding
//	go run ./internal/tools/prose -lower              all of them, and lowers the ceilings to the current numbers
//	go run ./internal/tools/prose -compare river,pgx  model projects, as a table
//
// Vale reads documents and Go comments with the rules in styles/Reprise; scripts/prose builds Vale. This package itself
// checks strings: errors, logs, output of commands, names and messages of tests, labels of templates, and comments of
// scripts, YAML files and style sheets. The file ceilings.txt limits the findings of each package and document. Ceilings can
// only fall. A package or document without a ceiling must not have findings.
//
// The command exits with status 1 if a package or document exceeds its ceiling.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// ceilingsFile lists the ceilings, relative to the root of the project.
const ceilingsFile = "internal/tools/prose/ceilings.txt"

// options contains the flags and arguments of the command line.
type options struct {
	vale     string   // the Vale binary
	config   string   // Vale's configuration
	ceilings string   // the file of ceilings
	list     bool     // print each finding
	check    bool     // print only packages and documents above their ceilings
	lower    bool     // rewrite the file of ceilings
	compare  string   // names of model projects
	patterns []string // packages and documents; empty means all
}

var errAbove = errors.New("ceilings exceeded")

func main() {
	o := options{config: ".vale.ini", ceilings: ceilingsFile}
	flag.StringVar(&o.vale, "vale", "vale", "`path` of Vale")
	flag.BoolVar(&o.list, "v", false, "list all findings")
	flag.BoolVar(&o.check, "check", false, "print only packages and documents above their ceilings")
	flag.BoolVar(&o.lower, "lower", false, "lower the ceilings to the present numbers")
	flag.StringVar(&o.compare, "compare", "", "measure the model projects `names`: "+strings.Join(modelNames(), ", "))
	flag.Parse()
	o.patterns = flag.Args()
	if err := run(os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, o options) error {
	if o.compare != "" {
		return compare(out, o)
	}
	units, err := measure(o, ".", o.patterns)
	if err != nil {
		return err
	}
	limits, err := readCeilings(o.ceilings)
	if err != nil {
		return err
	}
	if o.lower {
		if limits, err = lower(o.ceilings, limits, units, len(o.patterns) == 0); err != nil {
			return err
		}
	}
	if o.list || len(o.patterns) > 0 {
		for _, u := range units {
			for _, f := range u.findings {
				fmt.Fprintln(out, f)
			}
		}
	}
	if !o.check {
		if err := writeTable(out, units, limits); err != nil {
			return err
		}
	}
	return judge(out, units, limits)
}
