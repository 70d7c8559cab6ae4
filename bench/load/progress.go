package load

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// progress counts the messages of all publishers and consumers.
type progress struct {
	fail context.CancelCauseFunc

	published, confirmed, delivered atomic.Int64
	confirmedAt, deliveredAt        atomic.Int64 // times of clock

	waitsFor atomic.Int64 // number of messages that must be confirmed and delivered; negative outside of wait
	confirms bool
	consumes bool
	complete chan struct{}
}

func newProgress(o *Options, fail context.CancelCauseFunc) *progress {
	p := &progress{
		fail: fail, confirms: o.Confirms > 0, consumes: o.Consumers > 0,
		complete: make(chan struct{}, 1),
	}
	p.waitsFor.Store(-1)
	return p
}

func (p *progress) confirm(n int64) {
	p.confirmed.Add(n)
	p.look()
}

func (p *progress) deliver(n, at int64) {
	p.delivered.Add(n)
	p.deliveredAt.Store(at)
	p.look()
}

func (p *progress) look() {
	if !p.done() {
		return
	}
	select {
	case p.complete <- struct{}{}:
	default:
	}
}

func (p *progress) done() bool {
	n := p.waitsFor.Load()
	return n >= 0 && (!p.confirms || p.confirmed.Load() >= n) && (!p.consumes || p.delivered.Load() >= n)
}

// wait waits until all published messages are confirmed and delivered. If there is no confirm or delivery for the
// duration stall, wait returns an error.
func (p *progress) wait(ctx context.Context, stall time.Duration) error {
	p.waitsFor.Store(p.published.Load())
	defer p.waitsFor.Store(-1)
	p.look()
	timer := time.NewTimer(stall)
	defer timer.Stop()
	for last := p.confirmed.Load() + p.delivered.Load(); ; {
		select {
		case <-p.complete:
			if p.done() {
				return nil
			}
			continue // the warm-up sent this signal
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		now := p.confirmed.Load() + p.delivered.Load()
		if now == last {
			return fmt.Errorf("timed out after %v without a confirm or a delivery (published %d, confirmed %d, delivered %d)",
				stall, p.published.Load(), p.confirmed.Load(), p.delivered.Load())
		}
		last = now
		timer.Reset(stall)
	}
}
