package idempotent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// hold is the claim that one run of a handler has on a key.
type hold struct {
	store Store
	log   *slog.Logger
	key   string
	token string
	lease time.Duration

	// until is the end of the lease by the clock of this process. The lease counts from the time before the call to the
	// store, so that until is never later than the end of the lease in the store.
	until time.Time
}

// claim claims the key or extends its lease.
func (h *hold) claim(ctx context.Context) (Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, h.lease) // a later response would be useless
	defer cancel()
	began := time.Now()
	got, err := h.store.Claim(ctx, h.key, h.token, h.lease)
	if err == nil && got.State == Claimed {
		h.until = began.Add(h.lease)
	}
	return got, err
}

// keep extends the lease until stop is called, even if ctx is canceled while the handler still runs. It calls lost with
// ErrLost if another run has claimed or completed the key, or if the lease has expired and another run can therefore
// claim the key. After stop has returned, keep does not call the store.
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

// extend extends the lease. If the store does not answer before the lease ends, extend returns an error.
func (h *hold) extend(ctx context.Context) (Claim, error) {
	ctx, cancel := leave(ctx)
	defer cancel()
	ctx, end := context.WithDeadline(ctx, h.until)
	defer end()
	return h.claim(ctx)
}

// firstPause is the delay before the second call of Complete. Each further delay is twice as long; when the context of
// the handler is canceled, the delays start again.
const firstPause = 50 * time.Millisecond

// complete marks the key as done. The effect has happened, so complete retries after any error except ErrLost, for as
// long as retryContext permits. The message is acknowledged even if complete fails.
func (h *hold) complete(ctx context.Context, retention time.Duration) {
	retrying, stop := h.retryContext(ctx)
	defer stop()
	ended := ctx.Done()
	for pause := firstPause; ; pause *= 2 {
		asking, cancel := context.WithTimeout(retrying, timeout)
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
			case <-ended: // retry soon, because little time is left
				timer.Stop()
				ended, pause = nil, firstPause/2
				continue
			case <-retrying.Done():
				timer.Stop()
			}
		}
		h.log.Error("not remembered", "error", err)
		return
	}
}

// retryContext returns a context that is canceled at the end of the lease, or after timeout if that is later. If ctx is
// canceled, the returned context is canceled at most timeout later.
func (h *hold) retryContext(ctx context.Context) (retrying context.Context, stop func()) {
	end := time.Now().Add(timeout)
	if h.until.After(end) {
		end = h.until
	}
	retrying, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	done := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(done)
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-retrying.Done():
		}
	})
	return retrying, func() {
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

// leave returns a context that ignores the cancellation of ctx and expires after timeout.
func leave(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), timeout)
}
