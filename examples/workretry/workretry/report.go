package workretry

import (
	"fmt"
	"io"
	"strings"
)

// Report contains the results of a Comparison.
type Report struct {
	Comparison
	Ways []Result
}

// Result contains the outcomes of one way.
type Result struct {
	Name string
	Jobs []Outcome

	way way
}

// Outcome is the outcome of a job.
type Outcome struct {
	Job
	Attempts int // number of attempts of all copies
	Done     int
	Parked   int

	want effect
}

// Counts contains sums over several jobs.
type Counts struct{ Sent, Attempts, Done, Parked, Lost, Duplicated int }

func (c *Counts) add(o Outcome) {
	c.Sent++
	c.Attempts += o.Attempts
	c.Done += o.Done
	c.Parked += o.Parked
	c.Lost += max(0, 1-o.Done-o.Parked)
	c.Duplicated += max(0, o.Done+o.Parked-1)
}

// Retried returns the sums over the jobs for which no failure is injected during parking.
func (r Result) Retried() Counts { return r.count(func(o Outcome) bool { return !o.parking }) }

// Parking returns the sums over the jobs for which a failure is injected during parking.
func (r Result) Parking() Counts { return r.count(func(o Outcome) bool { return o.parking }) }

func (r Result) count(of func(Outcome) bool) (c Counts) {
	for _, o := range r.Jobs {
		if of(o) {
			c.add(o)
		}
	}
	return c
}

// String describes the comparison in two lines.
func (c Comparison) String() string {
	c = c.withDefaults()
	return fmt.Sprintf("%d jobs in each way, at most %d attempts, %s before a retry (as published: 300000 ms).\n"+
		"Something breaks in the middle of %d retries, and while %d jobs are parked.",
		c.Jobs, maxAttempts, c.Delay, 2*len(breaks), len(breaks))
}

// Print writes the report as text.
func (r *Report) Print(to io.Writer) {
	p := &printer{to: to}
	r.table(p, "retries", Result.Retried)
	p.linef("")
	r.table(p, "breaks in parking", Result.Parking)
	p.linef("")
	r.grid(p)
	p.linef("")
	var sum Counts
	for _, w := range r.Ways {
		for _, o := range w.Jobs {
			sum.add(o)
		}
	}
	p.linef("balance: %d sent + %d duplicated = %d done + %d parked + %d lost", sum.Sent, sum.Duplicated, sum.Done, sum.Parked, sum.Lost)
}

func (r *Report) table(p *printer, title string, counts func(Result) Counts) {
	p.linef("%-22s%6s%10s%6s%8s%6s%12s", title, "sent", "attempts", "done", "parked", "lost", "duplicated")
	for _, w := range r.Ways {
		c := counts(w)
		p.linef("%-22s%6d%10d%6d%8d%6d%12d", w.Name, c.Sent, c.Attempts, c.Done, c.Parked, c.Lost, c.Duplicated)
	}
}

// grid writes the result of each Break in each way.
func (r *Report) grid(p *printer) {
	var head strings.Builder
	head.WriteString(fmt.Sprintf("%-48s", "what breaks"))
	for _, w := range r.Ways {
		head.WriteString(fmt.Sprintf("  %-10s", w.Name))
	}
	p.linef("%s", head.String())
	for _, parking := range []bool{false, true} {
		p.linef("  %s", map[bool]string{false: "in the middle of a retry", true: "in the middle of being parked"}[parking])
		for _, b := range breaks {
			var line strings.Builder
			line.WriteString(fmt.Sprintf("    %-44s", b))
			for _, w := range r.Ways {
				line.WriteString(fmt.Sprintf("  %-*s", max(10, len(w.Name)), w.describe(b, parking)))
			}
			p.linef("%s", strings.TrimRight(line.String(), " "))
		}
	}
	p.linef("  · done or parked once, as if nothing had broken; – there is no such moment in this way")
}

// describe returns the result of the jobs with the break b, or a dash if b cannot happen.
func (r Result) describe(b Break, parking bool) string {
	if r.way.faultFor(Job{breaks: b, parking: parking}) == nil {
		return "–"
	}
	var c Counts
	for _, o := range r.Jobs {
		if o.breaks == b && o.parking == parking {
			c.add(o)
		}
	}
	switch {
	case c.Lost > 0:
		return lost.String()
	case c.Duplicated > 0:
		return duplicated.String()
	}
	return intact.String()
}

// printer writes lines and ignores write errors.
type printer struct{ to io.Writer }

func (p *printer) linef(format string, args ...any) { fmt.Fprintf(p.to, format+"\n", args...) }
