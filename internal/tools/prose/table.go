package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// writeTable prints a row for each unit, most findings first, and the totals for documents, for comments and for both.
func writeTable(out io.Writer, units []*unit, limits map[string]ceiling) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "words\talerts\tper 10,000\tceiling\tstrings\tceiling\t  package or document")
	row := func(name string, u unit, c ceiling) {
		fmt.Fprintf(table, "%d\t%d\t%s\t%d\t%d\t%d\t  %s\n", u.words, u.alerts, rate(u), c.alerts, u.strings, c.strings, name)
	}
	var docs, comments unit
	var docsLimit, commentsLimit ceiling
	sorted := slices.SortedStableFunc(slices.Values(units), func(a, b *unit) int {
		return cmp.Compare(b.alerts+b.strings, a.alerts+a.strings)
	})
	for _, u := range sorted {
		c := limits[u.name]
		row(u.name, *u, c)
		if u.document {
			docs, docsLimit = docs.plus(*u), docsLimit.plus(c)
		} else {
			comments, commentsLimit = comments.plus(*u), commentsLimit.plus(c)
		}
	}
	row("documents", docs, docsLimit)
	row("comments", comments, commentsLimit)
	row("all", docs.plus(comments), docsLimit.plus(commentsLimit))
	return table.Flush()
}

func (u unit) plus(v unit) unit {
	return unit{words: u.words + v.words, alerts: u.alerts + v.alerts, strings: u.strings + v.strings}
}

func (c ceiling) plus(d ceiling) ceiling { return ceiling{c.alerts + d.alerts, c.strings + d.strings} }

// rate returns the number of alerts per 10,000 words.
func rate(u unit) string {
	if u.words == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", 10_000*float64(u.alerts)/float64(u.words))
}
