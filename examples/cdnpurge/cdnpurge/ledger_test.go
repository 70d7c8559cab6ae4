package cdnpurge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// ledger records the purges of a week and the responses of the CDN.
type ledger struct {
	began time.Time
	at    map[string]time.Duration // time of publication, by purge ID

	mu       sync.Mutex
	sent     int
	took     map[string]time.Duration // time from publication to acceptance, by purge ID
	evenings [7]time.Duration         // from the end of a peak until all purges published by then are accepted, by the day on which the peak begins
	longest  int                      // maximum backlog
	hours    []hour
}

// hour counts the responses of the CDN in one hour.
type hour struct{ accepted, refused int }

func newLedger(all []purge, began time.Time) *ledger {
	l := &ledger{began: began, at: map[string]time.Duration{}, took: map[string]time.Duration{}}
	for _, m := range all {
		l.at[m.id] = m.at
	}
	return l
}

func (l *ledger) published() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	l.longest = max(l.longest, l.sent-len(l.took))
}

// left returns the number of purges that were published and not yet accepted.
func (l *ledger) left() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent - len(l.took)
}

func (l *ledger) answered(objects []json.RawMessage, status int) {
	id := string(objects[0]) // one worker makes one call at a time, for one purge
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.began)
	for int(now/time.Hour) >= len(l.hours) {
		l.hours = append(l.hours, hour{})
	}
	h := &l.hours[now/time.Hour]
	if status != http.StatusCreated {
		h.refused++
		return
	}
	h.accepted++
	if _, again := l.took[id]; again {
		return
	}
	at := l.at[id]
	l.took[id] = now - at
	if since := at - (peakEnds - day); since >= 0 { // the first peak began before the week
		evening := &l.evenings[since/day]
		*evening = max(*evening, now-(since/day*day+peakEnds))
	}
}

// result summarizes the results of a way in a week.
type result struct {
	way
	calls, refused, done, parked int
	median, p99, longestWait     time.Duration // time from publication to acceptance
	evening, latestEvening       time.Duration // mean and maximum of ledger.evenings
	waiting                      int           // maximum number of purges that were published and not yet accepted
	hours                        []hour
}

func (l *ledger) result(w way) result {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := result{way: w, done: len(l.took), waiting: l.longest, hours: l.hours}
	for _, h := range l.hours {
		r.calls += h.accepted + h.refused
		r.refused += h.refused
	}
	for _, d := range l.evenings {
		r.evening += d / time.Duration(len(l.evenings))
		r.latestEvening = max(r.latestEvening, d)
	}
	took := make([]time.Duration, 0, len(l.took))
	for _, d := range l.took {
		took = append(took, d)
	}
	slices.Sort(took)
	r.median, r.p99, r.longestWait = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	return r
}

// table formats the results as a table for README.md.
func table(results []result) string {
	var b strings.Builder
	row := func(what string, of func(r result) string) {
		fmt.Fprintf(&b, "| %s |", what)
		for _, r := range results {
			fmt.Fprintf(&b, " %s |", of(r))
		}
		b.WriteString("\n")
	}
	row("", func(r result) string { return r.name })
	row("---", func(result) string { return "---:" })
	row("calls", func(r result) string { return fmt.Sprint(r.calls) })
	row("of them refused, `507`", func(r result) string { return fmt.Sprint(r.refused) })
	row("refused calls for each purge done", func(r result) string { return fmt.Sprintf("%.2f", float64(r.refused)/float64(r.done)) })
	row("purges done", func(r result) string { return fmt.Sprint(r.done) })
	row("parked", func(r result) string { return fmt.Sprint(r.parked) })
	row("accepted after, median", func(r result) string { return brief(r.median) })
	row("accepted after, 99 %", func(r result) string { return brief(r.p99) })
	row("accepted after, longest", func(r result) string { return brief(r.longestWait) })
	row("peak's last purge accepted, after 2 h, mean", func(r result) string { return brief(r.evening) })
	row("peak's last purge accepted, after 2 h, latest", func(r result) string { return brief(r.latestEvening) })
	row("maximum backlog", func(r result) string { return fmt.Sprint(r.waiting) })
	return b.String()
}

// brief formats a duration in a single unit.
func brief(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	if d < time.Hour {
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.1f h", d.Hours())
}
