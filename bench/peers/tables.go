package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/reprisemq/reprise/bench/internal/report"
)

// column is a column of a table.
type column struct {
	metric, title string
	about         string // description in the list of better peers. Default: the list omits the column
	digits        int
	more          bool // higher values are better
	spread        bool // show the spread
}

// tables are the tables of the results.
var tables = []struct {
	text    string
	columns []column
}{
	{"Messages that do not fail. CPU is per message:", []column{
		{metric: processRate, title: "messages/s", about: "messages/s without failures", more: true, spread: true},
		{metric: processWorker, title: "CPU of the worker, µs", about: "CPU of the worker without failures, µs"},
		{metric: processStore, title: "CPU of the store, µs", about: "CPU of the store without failures, µs"},
	}},
	{"Each message fails once and waits. CPU and memory are per message; a dash means that retries came before all messages had failed:", []column{
		{metric: retryRate, title: "failures/s", about: "failures/s", more: true, spread: true},
		{metric: retryWorker, title: "CPU of the worker, µs", about: "CPU of the worker per failure, µs"},
		{metric: retryStore, title: "CPU of the store, µs", about: "CPU of the store per failure, µs"},
		{metric: waitWorker, title: "memory of the worker, bytes", about: "memory of the worker per waiting message, bytes"},
		{metric: waitStore, title: "memory of the store, bytes", about: "memory of the store per waiting message, bytes"},
	}},
	{"Lateness of retries at 500 messages/s. 40% of the messages (watermill: 2%) fail once or three times:", []column{
		{metric: lateMedian, title: "p50 ms", about: "lateness, p50 ms", digits: 1, spread: true},
		{metric: lateTail, title: "p99 ms", about: "lateness, p99 ms", digits: 1, spread: true},
		{metric: early, title: "earliest, ms too early", digits: 1},
	}},
	{"Seconds after SIGKILL until the worker continues, and until all messages are processed; then the replay of parked messages:", []column{
		{metric: workerBack, title: "worker killed: continues", about: "seconds until a killed worker continues", digits: 1},
		{metric: workerAll, title: "all processed", about: "seconds until all messages of a killed worker are processed", digits: 1},
		{metric: storeBack, title: "store killed: continues", about: "seconds until the worker continues after a kill of the store", digits: 1},
		{metric: storeAll, title: "all processed", about: "seconds until all messages of a killed store are processed", digits: 1},
		{metric: replayRate, title: "replayed/s", about: "replayed/s", more: true, spread: true},
	}},
	{"Messages of all steps and rounds:", []column{
		{metric: lost, title: "not processed within the limit"},
		{metric: duplicates, title: "duplicates after the kills"},
	}},
}

// results formats the results in Markdown.
func results(run *report.Run, all *report.Table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**, %d processors (%s); %s, %s; load before: %s; rounds: %d\n", run.Began.Format("2006-01-02"), run.CPUs, run.CPU, run.Kernel, run.Go, run.Load, rounds(all))
	fmt.Fprintf(&b, "`make bench-peers ARGS='%s'`\n", strings.Join(run.Command, " "))
	if ahead := better(all); len(ahead) > 0 {
		b.WriteString("\nPeers with better results than `reprise` on RabbitMQ, beyond the spread of both:\n\n")
		for _, line := range ahead {
			fmt.Fprintf(&b, "- %s\n", line)
		}
	}
	for _, t := range tables {
		fmt.Fprintf(&b, "\n%s\n\n| peer |", t.text)
		for _, c := range t.columns {
			fmt.Fprintf(&b, " %s |", c.title)
		}
		fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("--:|", len(t.columns)))
		for _, p := range all.Contenders {
			fmt.Fprintf(&b, "| %s |", p.Name)
			for _, c := range t.columns {
				fmt.Fprintf(&b, " %s |", c.cell(p))
			}
			b.WriteByte('\n')
		}
	}
	if len(all.Notes) > 0 {
		b.WriteByte('\n')
	}
	for _, note := range all.Notes {
		fmt.Fprintf(&b, "- %s\n", note)
	}
	return b.String()
}

func rounds(all *report.Table) (n int) {
	for _, c := range all.Contenders {
		n = max(n, len(c.Rounds))
	}
	return n
}

// values returns the results of all rounds that have the metric.
func values(c *report.Contender, metric string) (all []float64) {
	for _, m := range c.Rounds {
		if v, ok := m[metric]; ok {
			all = append(all, v)
		}
	}
	return all
}

func (c column) cell(p *report.Contender) string {
	all := values(p, c.metric)
	if len(all) == 0 {
		return "–"
	}
	median := p.Median[c.metric]
	if c.metric == lost || c.metric == duplicates {
		median = 0
		for _, v := range all {
			median += v
		}
	}
	text := c.number(median)
	if c.spread && len(all) > 1 && median != 0 {
		text += fmt.Sprintf(" (%.0f%%)", 100*(slices.Max(all)-slices.Min(all))/median)
	}
	if len(all) < len(p.Rounds) {
		text += fmt.Sprintf(" in %d of %d rounds", len(all), len(p.Rounds))
	}
	return text
}

// number formats a value with commas.
func (c column) number(v float64) string {
	whole, rest, point := strings.Cut(strconv.FormatFloat(v, 'f', c.digits, 64), ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if point {
		whole += "." + rest
	}
	return whole
}

// better lists the metrics in which all rounds of a peer are better than all rounds of Reprise.
func better(all *report.Table) (lines []string) {
	own := all.Contender("reprise")
	if own == nil {
		return nil
	}
	for _, t := range tables {
		for _, c := range t.columns {
			mine := values(own, c.metric)
			if c.about == "" || len(mine) == 0 {
				continue
			}
			var names []string
			for _, p := range all.Contenders {
				theirs := values(p, c.metric)
				if strings.HasPrefix(p.Name, "reprise") || len(theirs) == 0 || slices.Min(theirs) <= 0 { // noise, for a difference of memory
					continue
				}
				if c.more && slices.Min(theirs) > slices.Max(mine) || !c.more && slices.Max(theirs) < slices.Min(mine) {
					names = append(names, fmt.Sprintf("%s (%s)", p.Name, c.number(p.Median[c.metric])))
				}
			}
			if len(names) > 0 {
				lines = append(lines, fmt.Sprintf("%s (`reprise`: %s): %s", c.about, c.number(own.Median[c.metric]), strings.Join(names, ", ")))
			}
		}
	}
	return lines
}

// The results in README.md are between these lines.
const beginning, end = "<!-- results: make bench-peers ARGS=-readme writes them -->\n", "<!-- end of the results -->\n"

// writeReadme replaces the results in a file.
func writeReadme(file, results string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), beginning)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return fmt.Errorf("the lines around the results not found in %s", file)
	}
	return os.WriteFile(file, []byte(before+beginning+"\n"+results+"\n"+end+after), 0o644)
}
