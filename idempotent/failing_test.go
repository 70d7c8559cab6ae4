package idempotent_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/idempotent"
)

// faulty is a store whose methods fail on demand.
type faulty struct {
	idempotent.Store
	claim, complete, release atomic.Bool
}

var errDown = errors.New("connection refused")

func (s *faulty) Claim(ctx context.Context, key, token string, lease time.Duration) (idempotent.Claim, error) {
	if s.claim.Load() {
		return idempotent.Claim{}, errDown
	}
	return s.Store.Claim(ctx, key, token, lease)
}

func (s *faulty) Complete(ctx context.Context, key, token string, retention time.Duration) error {
	if s.complete.Load() {
		return errDown
	}
	return s.Store.Complete(ctx, key, token, retention)
}

func (s *faulty) Release(ctx context.Context, key, token string) error {
	if s.release.Load() {
		return errDown
	}
	return s.Store.Release(ctx, key, token)
}

func TestAStoreThatIsDown(t *testing.T) {
	t.Run("when the message comes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var inner counted
			store := &faulty{Store: new(idempotent.Memory)}
			store.claim.Store(true)
			h := protect(t, store, idempotent.Config{}, inner.Handle)
			err := h.Handle(t.Context(), message())
			var failed *idempotent.StoreError
			if !errors.As(err, &failed) || !errors.Is(err, errDown) || failed.Key != "orders/order-1" || inner.runs.Load() != 0 {
				t.Errorf("%v; handled %d times", err, inner.runs.Load())
			}
			store.claim.Store(false)
			if err := h.Handle(t.Context(), message()); err != nil || inner.runs.Load() != 1 {
				t.Errorf("when it is up again: %v; handled %d times", err, inner.runs.Load())
			}
		})
	})

	t.Run("and has done what it failed to confirm", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var inner counted
			store := &deaf{Memory: new(idempotent.Memory)}
			h := protect(t, store, idempotent.Config{}, inner.Handle)
			if err := h.Handle(t.Context(), message()); err == nil {
				t.Error("the claim was not confirmed")
			}
			if err := h.Handle(t.Context(), message()); err != nil || inner.runs.Load() != 1 {
				t.Errorf("the next attempt: %v; handled %d times", err, inner.runs.Load())
			}
		})
	})

	t.Run("while the handler runs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: new(idempotent.Memory)}
			log, logged := events()
			began := time.Now()
			var ended time.Duration
			h := protect(t, store, idempotent.Config{Lease: time.Minute, Logger: log}, func(ctx context.Context, _ *reprise.Message) error {
				time.Sleep(5 * time.Minute)
				store.claim.Store(true)
				<-ctx.Done()
				ended = time.Since(began)
				return context.Cause(ctx)
			})
			if err := h.Handle(t.Context(), message()); !errors.Is(err, idempotent.ErrLost) {
				t.Errorf("the handler's context ended with %v", err)
			}
			// The last extension was at about 4 min 40 s.
			if ended < 5*time.Minute+40*time.Second || ended > 6*time.Minute {
				t.Errorf("its context ended after %v", ended)
			}
			if !strings.Contains(logged(), "claim lost") || !strings.Contains(logged(), "connection refused") {
				t.Errorf("logged:\n%s", logged())
			}
		})
	})

	t.Run("for a moment while the handler runs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: new(idempotent.Memory)}
			h := protect(t, store, idempotent.Config{Lease: time.Minute}, func(ctx context.Context, _ *reprise.Message) error {
				store.claim.Store(true)
				time.Sleep(50 * time.Second)
				store.claim.Store(false)
				time.Sleep(time.Hour)
				return context.Cause(ctx)
			})
			if err := h.Handle(t.Context(), message()); err != nil {
				t.Error(err)
			}
		})
	})

	t.Run("when the handler has succeeded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: new(idempotent.Memory)}
			store.complete.Store(true)
			var inner counted
			h := protect(t, store, idempotent.Config{}, inner.Handle)
			time.AfterFunc(20*time.Second, func() { store.complete.Store(false) })
			for range 2 {
				if err := h.Handle(t.Context(), message()); err != nil {
					t.Error(err)
				}
			}
			if n := inner.runs.Load(); n != 1 {
				t.Errorf("handled %d times", n)
			}
		})
	})

	t.Run("for too long when the handler has succeeded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: new(idempotent.Memory)}
			store.complete.Store(true)
			log, logged := events()
			h := protect(t, store, idempotent.Config{Lease: time.Minute, Logger: log}, new(counted).Handle)
			began := time.Now()
			if err := h.Handle(t.Context(), message()); err != nil {
				t.Errorf("the effect has happened, and yet it comes again: %v", err)
			}
			if d := time.Since(began); d > time.Minute {
				t.Errorf("its slot was held for %v", d)
			}
			if !strings.Contains(logged(), "level=ERROR msg=\"not remembered\"") {
				t.Errorf("logged:\n%s", logged())
			}
		})
	})

	// At the end of a drain, some time is left.
	t.Run("for a moment when the handler has succeeded, and its context has ended", func(t *testing.T) {
		for name, endsAfter := range map[string]time.Duration{"before": 0, "while that is tried": 20 * time.Second} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &faulty{Store: new(idempotent.Memory)}
					store.complete.Store(true)
					var runs atomic.Int32
					ctx, end := context.WithCancel(t.Context())
					h := protect(t, store, idempotent.Config{}, func(context.Context, *reprise.Message) error {
						runs.Add(1)
						if endsAfter == 0 {
							end()
						}
						time.AfterFunc(endsAfter, end)
						time.AfterFunc(endsAfter+time.Second, func() { store.complete.Store(false) })
						return nil
					})
					for _, ctx := range []context.Context{ctx, t.Context()} {
						if err := h.Handle(ctx, message()); err != nil {
							t.Error(err)
						}
						time.Sleep(2 * time.Minute)
					}
					if n := runs.Load(); n != 1 {
						t.Errorf("handled %d times", n)
					}
				})
			})
		}
	})

	t.Run("for too long when its context has ended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: new(idempotent.Memory)}
			store.complete.Store(true)
			log, logged := events()
			ctx, end := context.WithCancel(t.Context())
			h := protect(t, store, idempotent.Config{Logger: log}, func(context.Context, *reprise.Message) error {
				time.AfterFunc(20*time.Second, end)
				return nil
			})
			began := time.Now()
			if err := h.Handle(ctx, message()); err != nil {
				t.Errorf("the effect has happened, and yet it comes again: %v", err)
			}
			if d := time.Since(began); d != 23*time.Second {
				t.Errorf("its slot was held for %v", d)
			}
			if !strings.Contains(logged(), "not remembered") || strings.Contains(logged(), "context canceled") {
				t.Errorf("logged:\n%s", logged())
			}
		})
	})

	t.Run("when the handler has failed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: new(idempotent.Memory)}
			store.release.Store(true)
			log, logged := events()
			h := protect(t, store, idempotent.Config{Logger: log}, func(context.Context, *reprise.Message) error { return errHandler })
			if err := h.Handle(t.Context(), message()); err != errHandler {
				t.Errorf("the handler's error became %v", err)
			}
			if !strings.Contains(logged(), "level=WARN msg=\"not released\"") {
				t.Errorf("logged:\n%s", logged())
			}
		})
	})
}

// deaf performs the first call and reports that it failed.
type deaf struct {
	*idempotent.Memory
	asked bool
}

func (s *deaf) Claim(ctx context.Context, key, token string, lease time.Duration) (idempotent.Claim, error) {
	c, err := s.Memory.Claim(ctx, key, token, lease)
	if !s.asked {
		s.asked = true
		return idempotent.Claim{}, errors.New("connection reset")
	}
	return c, err
}

// hung does not answer until the context is canceled.
type hung struct{ idempotent.Store }

func (hung) Claim(ctx context.Context, _, _ string, _ time.Duration) (idempotent.Claim, error) {
	<-ctx.Done()
	return idempotent.Claim{}, ctx.Err()
}

func (hung) Release(ctx context.Context, _, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAStoreThatHangs(t *testing.T) {
	t.Run("when the message comes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := protect(t, hung{}, idempotent.Config{Lease: 10 * time.Second}, new(counted).Handle)
			began := time.Now()
			if err := h.Handle(t.Context(), message()); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if d := time.Since(began); d > 15*time.Second {
				t.Errorf("its slot was held for %v", d)
			}
		})
	})
	t.Run("while the handler runs", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &first{hung{}, new(idempotent.Memory)}
			began := time.Now()
			h := protect(t, store, idempotent.Config{Lease: 10 * time.Second}, func(ctx context.Context, _ *reprise.Message) error {
				<-ctx.Done()
				if d := time.Since(began); d != 10*time.Second {
					t.Errorf("its context ended after %v", d)
				}
				return context.Cause(ctx)
			})
			if err := h.Handle(t.Context(), message()); !errors.Is(err, idempotent.ErrLost) {
				t.Error(err)
			}
		})
	})
}

// first answers the first call, and does not answer later calls.
type first struct {
	hung
	answers idempotent.Store
}

func (s *first) Claim(ctx context.Context, key, token string, lease time.Duration) (idempotent.Claim, error) {
	if s.answers == nil {
		return s.hung.Claim(ctx, key, token, lease)
	}
	answers := s.answers
	s.answers = nil
	return answers.Claim(ctx, key, token, lease)
}
