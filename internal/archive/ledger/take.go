package ledger

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/archive/store"
)

// Take takes a sample of each account. If it cannot read the figures of the broker or the archive, Take returns an
// error and does not add samples. It omits an account that was sampled less than half of Config.Every ago, and a new
// account until the broker has figures for all its work queues.
func (l *Ledger) Take(ctx context.Context, from Sources, accounts []Account) error {
	accounts = Join(accounts)
	for _, a := range accounts {
		if err := a.Validate(); err != nil {
			return err
		}
	}
	if err := l.acquire(ctx); err != nil {
		return err
	}
	defer l.release()
	figures, err := from.Broker.Queues(ctx)
	if err != nil {
		return err
	}
	var archived []store.QueueSummary
	if from.Archive != nil {
		if archived, err = from.Archive.Queues(ctx); err != nil {
			return err
		}
	}
	pages, err := l.pages(ctx)
	if err != nil {
		return err
	}
	known, err := l.accounts(ctx)
	if err != nil {
		return err
	}
	now := l.cfg.Clock().Truncate(time.Millisecond)
	for _, a := range accounts {
		r := account{name: a.Name(), work: a.Work}
		if i := slices.IndexFunc(known, func(k account) bool { return k.name == r.name }); i >= 0 {
			r = known[i]
		}
		if err := l.take(ctx, a, &r, now, figures, from.Archive, archived, pages); err != nil {
			return fmt.Errorf("account %s: %w", r.name, err)
		}
	}
	if err := l.fold(ctx, pages, now); err != nil {
		return err
	}
	return nil
}

// take adds a sample of an account, and opens the account if possible.
func (l *Ledger) take(ctx context.Context, a Account, r *account, now time.Time, figures map[string]Figures, archive Archive, archived []store.QueueSummary, pages []page) error {
	before, err := l.last(ctx, r.name, 3)
	if err != nil {
		return err
	}
	var last *sample
	if len(before) > 0 {
		last = &before[len(before)-1]
		if now.Sub(last.until) < l.cfg.Every/2 {
			return nil // another process, or this process before a restart, has just taken a sample
		}
	}
	for _, q := range a.Work {
		if _, found := figures[q]; !found && last == nil {
			return nil // the queue does not exist
		}
	}
	for q, f := range figures {
		if f.Unknown && a.place(q) != nowhere {
			return nil
		}
	}
	x := sample{at: now, until: now}
	if last != nil {
		x.terms = counted(last.terms)
	}
	x.broker(a, r, figures)
	x.archive(a, archived)
	x.workers(a, pages)
	r.seen = now
	if err := l.add(ctx, r.name, last, x); err != nil {
		return err
	}
	if err := l.put(ctx, r); err != nil {
		return err
	}
	after, err := l.last(ctx, r.name, 3)
	if err != nil {
		return err
	}
	// The queues were empty, and the figures are at most 10 s old (see oldest). Therefore all messages that were sent more
	// than 10 s before the sample are settled.
	if now := after[len(after)-1]; archive != nil && now.empty() {
		if err := archive.SettleOutcomes(ctx, a.Work, now.until.Add(-oldest)); err != nil {
			return err
		}
	}
	old := *r
	if r.open(after) {
		silent, err := l.silent(ctx, now, &old, pages)
		if err == nil && silent == 0 {
			err = l.begin(ctx, r)
		}
		if err != nil {
			return err
		}
	}
	return l.prune(ctx, r.name, l.cfg.Keep)
}

// acquire acquires the semaphore for changes of accounts.
func (l *Ledger) acquire(ctx context.Context) error {
	select {
	case l.changes <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *Ledger) release() { <-l.changes }

// counted returns the accumulated counts of the previous sample. The ledger accumulates them, because the broker may reset
// its counters.
func counted(before terms) (t terms) {
	for _, i := range []term{published, taken, got, outParking, resets} {
		t[i] = before[i]
	}
	return t
}

// counters are the counters of a queue on the broker: Figures.Published, Taken and Got.
type counters [3]int64

func (x *sample) broker(a Account, r *account, figures map[string]Figures) {
	raw := map[string]counters{}
	anew := false
	for queue, f := range figures {
		where := a.place(queue)
		if where == nowhere {
			continue
		}
		key := base64.StdEncoding.EncodeToString([]byte(queue))
		now, before := counters{f.Published, f.Taken, f.Got}, r.raw[key]
		raw[key] = now
		if now[0] < before[0] || now[1] < before[1] || now[2] < before[2] {
			anew, before = true, counters{}
		}
		in, out := now[0]-before[0], now[1]-before[1]
		switch where {
		case work:
			x.terms[published] += in
			x.terms[taken] += out
			x.terms[got] += now[2] - before[2]
			x.terms[ready] += f.Messages - f.Unacked
			x.terms[unacked] += f.Unacked
		case levels:
			x.terms[published] += in
			x.terms[waiting] += f.Messages
		case wait:
			x.terms[waiting] += f.Messages
		case parked:
			x.terms[outParking] += out
			x.terms[inParking] += f.Messages
		}
	}
	for key, before := range r.raw {
		if _, found := raw[key]; !found && before != (counters{}) {
			anew = true // the queue was deleted
		}
	}
	if anew {
		x.terms[resets]++
	}
	r.raw = raw
}

func (x *sample) archive(a Account, archived []store.QueueSummary) {
	for _, q := range archived {
		if slices.Contains(a.Work, string(q.Queue)) {
			x.terms[failing] += q.Counts.Failed
			x.terms[replaying] += q.Counts.Replaying
			x.terms[replayed] += q.Counts.Replayed
			x.terms[discarded] += q.Counts.Discarded
			x.terms[removed] += q.Purged
		}
	}
}

func (x *sample) workers(a Account, pages []page) {
	for _, p := range pages {
		if slices.Contains(a.Work, p.queue) {
			x.terms[done] += p.Done
			x.terms[debounced] += p.Debounced
			x.terms[retried] += p.Retried
			x.terms[gaveUp] += p.Parked
			x.terms[dropped] += p.Dropped
			x.terms[lost] += p.Lost
			x.terms[refused] += p.Refused
			x.terms[rejected] += p.Rejected
		}
	}
}

// open opens the account with the newest sample whose slack is known. An exact opening requires four equal samples: a
// message that returned from a wait queue can be in no figure of two of them, and would later be a surplus.
//
// If the account was opened during activity, open opens it again with a later sample without activity, unless the
// deviation exceeds the slack. It does not correct the first opening, because losses within the slack would become part
// of the correction. The result reports whether the account has changed.
func (r *account) open(newest []sample) bool {
	for i := len(newest) - 1; i >= 0; i-- {
		s, known := slack(newest, i)
		if !known {
			continue
		}
		if (i == 0 || s == 0) && newest[i].times < 4 { // the first sample does not show the activity before it
			return false
		}
		again := r.slack > 0 && s == 0 && newest[i].at.After(r.opened) && abs(newest[i].missing(&r.terms)) <= r.slack
		if r.opened.IsZero() || again {
			r.opened, r.opening = newest[i].at, opening{newest[i].terms, s}
			return true
		}
	}
	return false
}
