package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json`; see go doc test2json and go help buildjson.
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	Elapsed     float64
	ImportPath  string // path of a build, which can differ from the name of a package
	FailedBuild string // ImportPath of the failed build of a package
}

// report collects events. It prints the result of each package when the package finishes.
type report struct {
	out      io.Writer
	start    time.Time
	packages map[string]*pkg // packages that have started and not finished
	order    []string        // names, in the order in which the packages started
	builds   map[string]*build

	tested  int // number of packages that have tests
	tests   int
	failed  []string
	skipped []string
}

type pkg struct {
	name    string
	output  strings.Builder
	running map[string]*test
	order   []*test
	count   int
	failed  []string
	skipped int
}

type test struct {
	name   string
	output strings.Builder
	failed bool
}

type build struct {
	output strings.Builder
	failed bool
	shown  bool
}

func newReport(out io.Writer) *report {
	return &report{
		out:      out,
		start:    time.Now(),
		packages: make(map[string]*pkg),
		builds:   make(map[string]*build),
	}
}

// read processes events until the end of the input. It prints other lines unchanged, because the go command reports problems
// that precede the tests as plain text.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				r.event(e)
			} else {
				fmt.Fprintf(r.out, "%s\n", bytes.TrimRight(line, "\r\n"))
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) event(e event) {
	switch {
	case e.ImportPath != "":
		b := r.build(e.ImportPath)
		b.output.WriteString(e.Output)
		b.failed = b.failed || e.Action == "build-fail"
	case e.Package == "":
	case e.Test != "":
		r.pkg(e.Package).event(e, r)
	default:
		p := r.pkg(e.Package)
		switch e.Action {
		case "output":
			p.output.WriteString(e.Output)
		case "pass", "fail", "skip":
			r.end(p, e)
		}
	}
}

func (r *report) build(path string) *build {
	b := r.builds[path]
	if b == nil {
		b = new(build)
		r.builds[path] = b
	}
	return b
}

func (r *report) pkg(name string) *pkg {
	p := r.packages[name]
	if p == nil {
		p = &pkg{name: short(name), running: make(map[string]*test)}
		r.packages[name] = p
		r.order = append(r.order, name)
	}
	return p
}

func (p *pkg) event(e event, r *report) {
	t := p.running[e.Test]
	if t == nil {
		t = &test{name: e.Test}
		p.running[e.Test] = t
		p.order = append(p.order, t)
	}
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
		return
	case "pass":
		t.output.Reset()
	case "fail":
		p.fail(t)
	case "skip":
		p.skipped++
		r.skipped = append(r.skipped, p.name+" "+t.name+reason(t.output.String()))
		t.output.Reset()
	default: // run, pause, cont, …
		return
	}
	p.count++
	delete(p.running, e.Test)
}

// fail records that t failed. A test that failed only because of a subtest is printed, but it is neither counted nor listed.
func (p *pkg) fail(t *test) {
	t.failed = true
	for _, name := range p.failed {
		if strings.HasPrefix(name, t.name+"/") {
			return
		}
	}
	p.failed = append(p.failed, t.name)
}

// end prints the result of a finished package, and discards the package.
func (r *report) end(p *pkg, e event) {
	delete(r.packages, e.Package)
	if e.Action == "fail" {
		for _, t := range slices.Backward(p.order) {
			if p.running[t.name] != nil { // a test that was running during a panic or a timeout has no final event
				p.count++
				p.fail(t)
			}
		}
	}
	r.tests += p.count
	if p.count > 0 {
		r.tested++
	}
	switch {
	case e.Action == "skip":
		fmt.Fprintf(r.out, "-     %-32s no tests\n", p.name)
	case e.FailedBuild != "":
		fmt.Fprintf(r.out, "FAIL  %-32s does not build\n", p.name)
		r.failed = append(r.failed, p.name+" (does not build)")
		r.showBuild(r.build(e.FailedBuild))
	case e.Action == "fail":
		r.endFailed(p, e.Elapsed)
	case p.skipped > 0:
		fmt.Fprintf(r.out, "SKIP  %-32s %s\n", p.name, p.sum(e.Elapsed))
	default:
		fmt.Fprintf(r.out, "ok    %-32s %s\n", p.name, p.sum(e.Elapsed))
	}
}

func (r *report) endFailed(p *pkg, elapsed float64) {
	fmt.Fprintf(r.out, "FAIL  %-32s %s\n", p.name, p.sum(elapsed))
	for _, t := range p.order {
		if t.failed {
			writeLines(r.out, t.output.String())
		}
	}
	// Print output that does not belong to a test, for example from a TestMain that refuses to run, or from a crash at the
	// end.
	writeLines(r.out, withoutVerdict(p.output.String()))
	for _, name := range p.failed {
		if p.running[name] != nil {
			name += " (did not finish)"
		}
		r.failed = append(r.failed, p.name+" "+name)
	}
	if len(p.failed) == 0 {
		r.failed = append(r.failed, p.name+" (the package, but no test in it)")
	}
}

func (p *pkg) sum(elapsed float64) string {
	s := fmt.Sprintf("%7.2fs %5d tests", elapsed, p.count)
	if len(p.failed) > 0 {
		s += fmt.Sprintf(", %d failed", len(p.failed))
	}
	if p.skipped > 0 {
		s += fmt.Sprintf(", %d skipped", p.skipped)
	}
	return s
}

func (r *report) showBuild(b *build) {
	if !b.shown {
		writeLines(r.out, b.output.String())
	}
	b.shown = true
}

// finish writes the summary and reports whether the run succeeded.
func (r *report) finish() bool {
	for _, name := range r.order {
		if p := r.packages[name]; p != nil {
			p.output.WriteString("the package did not finish\n")
			r.end(p, event{Action: "fail", Package: name})
		}
	}
	for path, b := range r.builds {
		if b.failed && !b.shown {
			r.showBuild(b)
			r.failed = append(r.failed, short(path)+" (does not build)")
		}
	}
	list(r.out, "failed", r.failed)
	list(r.out, "skipped", r.skipped)
	fmt.Fprintf(r.out, "\n%d tests in %d packages in %.1fs: %d failed, %d skipped\n",
		r.tests, r.tested, time.Since(r.start).Seconds(), len(r.failed), len(r.skipped))
	if r.tests == 0 {
		fmt.Fprintln(r.out, "no test was run")
	}
	return r.tests > 0 && len(r.failed) == 0 && len(r.skipped) == 0
}

func list(w io.Writer, what string, names []string) {
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%d %s:\n", len(names), what)
	for _, name := range names {
		fmt.Fprintf(w, "  %s\n", name)
	}
}

// reason returns the reason for a skipped test, on one line.
func reason(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return ": " + strings.Join(lines, " ")
}

// withoutVerdict omits the lines that repeat the result of the package.
func withoutVerdict(output string) string {
	var kept strings.Builder
	for line := range strings.Lines(output) {
		switch word, _, _ := strings.Cut(strings.TrimRight(line, "\n"), "\t"); word {
		case "FAIL", "PASS":
		default:
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// writeLines writes s, and adds a missing newline at its end.
func writeLines(w io.Writer, s string) {
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	io.WriteString(w, s)
}

// short returns the name of a package relative to the module.
func short(name string) string {
	const module = "github.com/reprisemq/reprise"
	if name == module {
		return "."
	}
	return strings.TrimPrefix(name, module+"/")
}
