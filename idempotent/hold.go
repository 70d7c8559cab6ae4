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
func (h *hold) extend(ctx context.Context) (got Claim, err error) {
	err = h.within(ctx, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithDeadline(ctx, h.until)
		defer cancel()
		got, err = h.claim(ctx)
		return err
	})
	return got, err
}

// complete has the key remembered. The effect has happened, so it is worth trying
// until the lease is over; the message is done either way.
func (h *hold) complete(ctx context.Context, retention time.Duration) {
	for pause := 50 * time.Millisecond; ; pause *= 2 {
		err := h.within(ctx, func(ctx context.Context) error {
			return h.store.Complete(ctx, h.key, h.token, retention)
		})
		if err == nil {
			return
		}
		if errors.Is(err, ErrLost) || !h.wait(ctx, pause) {
			h.log.Error("not remembered", "error", err)
			return
		}
	}
}

// release frees the key for the next attempt.
func (h *hold) release(ctx context.Context) {
	err := h.within(ctx, func(ctx context.Context) error {
		return h.store.Release(ctx, h.key, h.token)
	})
	if err != nil {
		h.log.Warn("not released", "error", err)
	}
}

// within asks the store although ctx may have ended, but not for long.
func (h *hold) within(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return ask(ctx)
}

// wait waits, and says whether it is worth trying again after that.
func (h *hold) wait(ctx context.Context, pause time.Duration) bool {
	if time.Until(h.until) < pause {
		return false
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
