package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// State is the state of an account.
type State string

// States of an account.
const (
	Opening  State = "opening"  // there are too few samples
	Balanced State = "balanced" // no discrepancy; exact if Line.Slack is 0
	Differs  State = "differs"
	Unknown  State = "unknown" // a worker of the account has no Book, or there are no recent figures
)

// Report contains the state of all accounts.
type Report struct {
	At       time.Time
	Accounts []Line // sorted by name
}

// Balanced reports whether no account has a discrepancy. It ignores accounts in the states Unknown and Opening.
func (r *Report) Balanced() bool {
	return !slices.ContainsFunc(r.Accounts, func(l Line) bool { return l.State == Differs })
}

// Line is the state of an account at the last sample whose slack is known. In equals Done + Ready + Unacked + Waiting +
// Failed + Replayed + Discarded + Removed + Missing.
type Line struct {
	Name  string
	State State
	Since time.Time // time at which the account was opened
	At    time.Time // time of the sample

	In        int64 // initial messages, and messages published since
	Done      int64
	Ready     int64
	Unacked   int64
	Waiting   int64
	Failed    int64
	Replayed  int64
	Discarded int64
	Removed   int64
	Missing   int64 // negative: too many

	Slack       int64        // maximum error of Missing due to messages that moved while the sample was taken
	Differences []Difference // in chronological order; only if State is Differs
	Note        string       // who restarted the account with Accept, when and why; or the reason for the state Unknown
}

// Difference describes a discrepancy: the number of missing or surplus messages, and the window in which it occurred.
type Difference struct {
	Messages     int64     // number of missing messages; negative: too many
	Since, Until time.Time // the window; Since is zero if the start is older than all samples
	Reasons      []string  // possible causes; may be empty

	died bool // a reporting process stopped without a last report
}

// String returns the number of messages and the window.
func (d Difference) String() string {
	n, window := d.Messages, "before "+clock(d.Until)
	if !d.Since.IsZero() {
		window = "between " + clock(d.Since) + " and " + clock(d.Until)
	}
	switch {
	case n == 1:
		return "1 message went missing " + window
	case n == -1:
		return "1 surplus message appeared " + window
	case n < 0:
		return fmt.Sprintf("%d surplus messages appeared %s", -n, window)
	}
	return fmt.Sprintf("%d messages went missing %s", n, window)
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// Report evaluates the stored samples. It does not send requests to the broker or the workers.
func (l *Ledger) Report(ctx context.Context) (*Report, error) {
	r := &Report{At: l.cfg.Clock().Truncate(time.Millisecond)}
	known, err := l.accounts(ctx)
	if err != nil {
		return nil, err
	}
	pages, err := l.pages(ctx)
	if err != nil {
		return nil, err
	}
	for _, a := range known {
		samples, err := l.samples(ctx, a.name, a.opened)
		if err != nil {
			return nil, fmt.Errorf("account %s: %w", a.name, err)
		}
		silent, err := l.silent(ctx, r.At, &a, pages)
		if err != nil {
			return nil, fmt.Errorf("account %s: %w", a.name, err)
		}
		if len(samples) > 0 {
			r.Accounts = append(r.Accounts, l.line(r.At, a, samples, pages, silent))
		}
	}
	return r, nil
}

// silent returns the number of messages that consumers without a book have certainly acknowledged since an inexact opening
// of an account. An exact opening does not require it, because the equation then contains each message. It returns 0 if a
// process stopped without a last report, because the acknowledgements may be from this process.
func (l *Ledger) silent(ctx context.Context, now time.Time, a *account, pages []page) (int64, error) {
	if a.slack == 0 || slices.ContainsFunc(pages, func(p page) bool {
		return slices.Contains(a.work, p.queue) && p.died(now) && p.seen.After(a.opened.Add(-2*p.every))
	}) {
		return 0, nil
	}
	samples, err := l.samples(ctx, a.name, a.opened.Add(-l.cfg.Every*3/2)) // the sample before the opening, too
	return silent(samples), err
}

func (l *Ledger) line(now time.Time, a account, samples []sample, pages []page, silent int64) Line {
	last := samples[len(samples)-1]
	line := Line{Name: a.name, Since: a.opened, At: last.until, Note: a.note, State: Opening}
	if a.opened.IsZero() {
		line.fill(&last.terms, &last.terms)
		return line
	}
	// Use the last sample whose slack is known.
	judged := last.terms
	for i := len(samples) - 1; i >= 0; i-- {
		if s, known := slack(samples, i); known {
			line.At, line.Slack, judged = samples[i].until, a.slack+s, samples[i].terms
			break
		}
	}
	line.fill(&a.terms, &judged)
	reports := slices.ContainsFunc(pages, func(p page) bool { return slices.Contains(a.work, p.queue) })
	switch {
	case !reports:
		line.State, line.Note = Unknown, "no worker reports to the ledger: the number of handled messages is unknown"
		return line
	case now.Sub(last.until) > 4*l.cfg.Every:
		line.State, line.Note = Unknown, "no figures since "+clock(last.until)
		return line
	case last.until.Sub(now) > 4*l.cfg.Every:
		line.State, line.Note = Unknown, "no new figures, because the clock is behind the last figures, "+clock(last.until)
		return line
	}
	line.State = Balanced
	for _, s := range steps(a.opening, samples) {
		line.State = Differs
		line.Differences = append(line.Differences, l.explain(now, a, samples, s, pages))
	}
	// On a busy queue, any part of the slack can be acknowledgements of consumers that do not report. The count of
	// acknowledgements may be older than the others, so take the newest one.
	judged[taken] = last.terms[taken]
	if n := judged.unreported(&a.terms) + line.Slack; line.explainedBy(n) {
		line.State, line.Differences = Unknown, nil
		line.Note = deliveries(n) + unreportedNote
		if line.Slack > 0 {
			line.Note = "up to " + line.Note
		}
	} else if silent > 0 && len(line.Differences) == 0 {
		line.State, line.Note = Unknown, "at least "+deliveries(silent)+unreportedNote
	}
	return line
}

const unreportedNote = " acknowledged by consumers that do not report to the ledger: the number of handled messages is unknown"

// explainedBy reports whether the only discrepancies are missing messages, and at most n acknowledgements of consumers that
// do not report explain all of them.
func (l *Line) explainedBy(n int64) bool {
	for _, d := range l.Differences {
		if d.Messages < 0 || d.died {
			return false
		}
		n -= d.Messages
	}
	return n >= 0 && len(l.Differences) > 0
}

// fill sets the counts of the line.
func (l *Line) fill(from, to *terms) {
	l.In = from.stock() - from[replayed] - from[removed] + to.incoming() - from.incoming()
	l.Done = to.ended() - from.ended()
	l.Ready, l.Unacked, l.Waiting = to[ready], to[unacked], to[waiting]
	l.Failed = to[inParking] + to[failing] + to[replaying]
	l.Discarded = to[discarded]
	l.Replayed, l.Removed = to[replayed]-from[replayed], to[removed]-from[removed]
	if l.Replayed < 0 { // the archive has removed a message that was replayed before the account was opened
		l.Removed += l.Replayed
		l.Replayed = 0
	}
	l.Missing = to.missing(from)
}

// explain returns the Difference for a step, with its possible causes.
func (l *Ledger) explain(now time.Time, a account, samples []sample, s step, pages []page) Difference {
	d := Difference{Messages: s.n, Until: samples[s.after].at}
	before := a.opening.terms
	if s.before >= 0 {
		d.Since, before = samples[s.before].until, samples[s.before].terms
	}
	after := samples[s.after].terms
	grown := func(t term) int64 { return after[t] - before[t] }
	say := func(format string, args ...any) { d.Reasons = append(d.Reasons, fmt.Sprintf(format, args...)) }

	if grown(resets) > 0 {
		say("the counters of the broker restarted (a restart, or a deleted queue): the number of messages just before is unknown")
	}
	if n := grown(dropped); n > 0 && s.n < 0 {
		say("%s not settled because the connection was lost, perhaps after a copy was published", deliveries(n))
	}
	if n := grown(refused); n > 0 && s.n < 0 {
		say("copies that were not confirmed, and published again: %d", n)
	}
	if n := grown(done) + grown(debounced) - grown(taken); n > 0 && s.n < 0 {
		say("%s processed more often than acknowledged (an acknowledgement was lost with a connection, and the message was redelivered)", deliveries(n))
	}
	if s.n < 0 {
		return d
	}
	if n := grown(lost); n > 0 {
		say("messages lost by workers, up to %d: acknowledged, and no copy published (AckThenPublish)", n)
	}
	for _, p := range pages {
		if slices.Contains(a.work, p.queue) && p.died(now) && !p.seen.Before(d.Since.Add(-2*p.every)) && p.seen.Before(d.Until) {
			d.died = true
			say("%s stopped without a last report: its results after %s are not counted", p.name, clock(p.seen))
		}
	}
	// Compare the broker's acknowledgements with the settlements that the workers and the archive report.
	others := after.acknowledged(&before)
	if n := others; n > 0 {
		say("%s acknowledged in the work queue by consumers that do not report to the ledger", deliveries(n))
	}
	archived := grown(failing) + grown(replaying) + grown(replayed) + grown(discarded) + grown(removed)
	if n := grown(outParking) - archived; n > 0 {
		say("%s acknowledged in the failed queue, and not archived", deliveries(n))
	}
	if len(d.Reasons) == 0 && others == 0 {
		say("not acknowledged by a worker: purged, expired, or dropped by the broker")
	}
	return d
}

func deliveries(n int64) string {
	if n == 1 {
		return "1 message was"
	}
	return fmt.Sprintf("%d messages were", n)
}
