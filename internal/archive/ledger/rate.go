package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Rate is the current throughput of the workers of an account.
type Rate struct {
	Work []string // work queues of the account
	Done float64  // messages per second for which the handler returned nil
}

// Rates returns the rate of each account that has recent samples and a worker with a Book. A rate is the average over
// at most twice Config.Every. Unlike the broker's rate of acknowledgements, it does not include messages that were
// retried, parked or debounced. A debounced message does not count, regardless of the outcome of its burst.
func (l *Ledger) Rates(ctx context.Context) ([]Rate, error) {
	known, err := l.accounts(ctx)
	if err != nil {
		return nil, err
	}
	pages, err := l.pages(ctx)
	if err != nil {
		return nil, err
	}
	now := l.cfg.Clock()
	var rates []Rate
	for _, a := range known {
		if !slices.ContainsFunc(pages, func(p page) bool { return slices.Contains(a.work, p.queue) }) {
			continue
		}
		newest, err := l.last(ctx, a.name, 4)
		if err != nil {
			return nil, fmt.Errorf("account %s: %w", a.name, err)
		}
		if len(newest) == 0 || now.Sub(newest[len(newest)-1].until) > 4*l.cfg.Every {
			continue
		}
		if done, ok := doneRate(newest, 2*l.cfg.Every); ok {
			rates = append(rates, Rate{Work: slices.Clone(a.work), Done: done})
		}
	}
	return rates, nil
}

// doneRate returns the average rate over a window that ends with the last sample, or over the time span of the samples if
// that is shorter. It returns false if the time span is 0.
func doneRate(samples []sample, window time.Duration) (float64, bool) {
	last := samples[len(samples)-1]
	start := last.until.Add(-window)
	base, at := samples[0], samples[0].at
	for _, s := range samples {
		if !s.at.After(start) { // the figures were valid from s.at to s.until
			base, at = s, s.until
			if at.After(start) {
				at = start
			}
		}
	}
	span := last.until.Sub(at)
	if span <= 0 {
		return 0, false
	}
	return float64(max(last.terms[done]-base.terms[done], 0)) / span.Seconds(), true
}
