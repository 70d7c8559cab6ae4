package idempotent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// hold is a claim on a key, by one run of a handler.
type hold struct {
	store Store
	log   *slog.Logger
	key   string
	token string
	lease time.Duration

	// until is when the lease ends at the latest, by the clock of this process:
	// counted from before the store was asked, so that it is never later than what
	// the store thinks.
	until time.Time
}

// claim asks for the key, or for a new lease of it.
func (h *hold) claim(ctx context.Context) (Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, h.lease) // an answer that comes later is worth nothing
	defer cancel()
	began := time.Now()
	got, err := h.store.Claim(ctx, h.key, h.token, h.lease)
	if err == nil && got.State == Claimed {
		h.until = began.Add(h.lease)
	}
	return got, err
}

// keep extends the lease, also while ctx has ended and the handler has not, until
// stop is called. It calls lost with ErrLost if another has got the key, or may
// get it. When stop has returned, the store is not being asked any more.
func (h *hold) keep(ctx context.Context, lost context.CancelCauseFunc) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		pause := h.lease / 3
		for {
			timer := time.NewTimer(min(pause, time.Until(h.until)))
			select {
			case <-done:
				timer.Stop()
				return
			case <-timer.C:
			}
			got, err := h.extend(ctx)
			switch {
			case err == nil && got.State == Claimed:
				pause = h.lease / 3
				continue
			case err == nil:
				err = errors.New("the key is " + got.State.String())
			case time.Now().Before(h.until):
				pause = h.lease / 10
				continue
			}
			h.log.Warn("claim lost", "reason", err)
			lost(ErrLost)
			return
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

// extend asks for a new lease, while there is one.
func (h *hold) extend(ctx context.Context) (Claim, error) {
	ctx, cancel := leave(ctx)
	defer cancel()
	ctx, end := context.WithDeadline(ctx, h.until)
	defer end()
	return h.claim(ctx)
}

// firstPause is how long complete waits before it asks again; then twice as long
// each time.
const firstPause = 50 * time.Millisecond

// complete has the key remembered. The effect has happened, so it is worth trying
// until the lease is over, or for patience once ctx has ended; the message is done
// either way.
func (h *hold) complete(ctx context.Context, retention time.Duration) {
	insisting, stop := h.insist(ctx)
	defer stop()
	ended := ctx.Done()
	for pause := firstPause; ; pause *= 2 {
		asking, cancel := context.WithTimeout(insisting, patience)
		err := h.store.Complete(asking, h.key, h.token, retention)
		cancel()
		if err == nil {
			return
		}
		if !errors.Is(err, ErrLost) {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
				continue
			case <-ended: // little time is left: do not sleep through it
				timer.Stop()
				ended, pause = nil, firstPause/2
				continue
			case <-insisting.Done():
				timer.Stop()
			}
		}
		h.log.Error("not remembered", "error", err)
		return
	}
}

// insist returns a context that ends with the lease, but not before patience, or
// when ctx has ended for as long as that.
func (h *hold) insist(ctx context.Context) (insisting context.Context, stop func()) {
	end := time.Now().Add(patience)
	if h.until.After(end) {
		end = h.until
	}
	insisting, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	done := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(done)
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-insisting.Done():
		}
	})
	return insisting, func() {
		cancel()
		if !unwatch() {
			<-done
		}
	}
}

// release frees the key for the next attempt.
func (h *hold) release(ctx context.Context) {
	ctx, cancel := leave(ctx)
	defer cancel()
	if err := h.store.Release(ctx, h.key, h.token); err != nil {
		h.log.Warn("not released", "error", err)
	}
}

// leave returns a context to ask the store with, although ctx may have ended, but not
// for long.
func leave(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), patience)
}
