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

// faultyStore is a store whose methods fail on demand.
type faultyStore struct {
	idempotent.Store
	claim, complete, release atomic.Bool
}

var errDown = errors.New("connection refused")

func (s *faultyStore) Claim(ctx context.Context, key, token string, lease time.Duration) (idempotent.Claim, error) {
	if s.claim.Load() {
		return idempotent.Claim{}, errDown
	}
	return s.Store.Claim(ctx, key, token, lease)
}

func (s *faultyStore) Complete(ctx context.Context, key, token string, retention time.Duration) error {
	if s.complete.Load() {
		return errDown
	}
	return s.Store.Complete(ctx, key, token, retention)
}

func (s *faultyStore) Release(ctx context.Context, key, token string) error {
	if s.release.Load() {
		return errDown
	}
	return s.Store.Release(ctx, key, token)
}

func TestMiddlewareWithUnavailableStore(t *testing.T) {
	t.Run("at the claim", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var inner countingHandler
			store := &faultyStore{Store: new(idempotent.Memory)}
			store.claim.Store(true)
			h := protect(t, store, idempotent.Config{}, inner.Handle)
			err := h.Handle(t.Context(), message())
			var failed *idempotent.StoreError
			if !errors.As(err, &failed) || !errors.Is(err, errDown) || failed.Key != "orders/order-1" || inner.runs.Load() != 0 {
				t.Errorf("got error %v and %d runs, want a StoreError of orders/order-1 and 0", err, inner.runs.Load())
			}
			store.claim.Store(false)
			if err := h.Handle(t.Context(), message()); err != nil || inner.runs.Load() != 1 {
				t.Errorf("message after the store has recovered: got error %v and %d runs, want nil and 1", err, inner.runs.Load())
			}
		})
	})

	t.Run("after the claim", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var inner countingHandler
			store := &lossyStore{Memory: new(idempotent.Memory)}
			h := protect(t, store, idempotent.Config{}, inner.Handle)
			if err := h.Handle(t.Context(), message()); err == nil {
				t.Error("Handle succeeded although Claim failed")
			}
			if err := h.Handle(t.Context(), message()); err != nil || inner.runs.Load() != 1 {
				t.Errorf("next attempt: got error %v and %d runs, want nil and 1", err, inner.runs.Load())
			}
		})
	})

	t.Run("during the run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &faultyStore{Store: new(idempotent.Memory)}
			log, logged := events()
			began := time.Now()
			var ended time.Duration
			h := protect(t, store, idempotent.Config{Lease: time.Minute, Logger: log}, func(ctx context.Context, _ *reprise.Delivery) error {
				time.Sleep(5 * time.Minute)
				store.claim.Store(true)
				<-ctx.Done()
				ended = time.Since(began)
				return context.Cause(ctx)
			})
			if err := h.Handle(t.Context(), message()); !errors.Is(err, idempotent.ErrLost) {
				t.Errorf("got %v, want ErrLost", err)
			}
			// The last extension was at about 4 min 40 s.
			if ended < 5*time.Minute+40*time.Second || ended > 6*time.Minute {
				t.Errorf("time until the context of the handler was canceled: got %v, want 5m40s to 6m", ended)
			}
			if !strings.Contains(logged(), "claim lost") || !strings.Contains(logged(), "connection refused") {
				t.Errorf("log must contain claim lost and connection refused: got\n%s", logged())
			}
		})
	})

	t.Run("briefly during the run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &faultyStore{Store: new(idempotent.Memory)}
			h := protect(t, store, idempotent.Config{Lease: time.Minute}, func(ctx context.Context, _ *reprise.Delivery) error {
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

	t.Run("briefly after success", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &faultyStore{Store: new(idempotent.Memory)}
			store.complete.Store(true)
			var inner countingHandler
			h := protect(t, store, idempotent.Config{}, inner.Handle)
			time.AfterFunc(20*time.Second, func() { store.complete.Store(false) })
			for range 2 {
				if err := h.Handle(t.Context(), message()); err != nil {
					t.Error(err)
				}
			}
			if n := inner.runs.Load(); n != 1 {
				t.Errorf("message was handled %d times, want 1", n)
			}
		})
	})

	t.Run("too long after success", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &faultyStore{Store: new(idempotent.Memory)}
			store.complete.Store(true)
			log, logged := events()
			h := protect(t, store, idempotent.Config{Lease: time.Minute, Logger: log}, new(countingHandler).Handle)
			began := time.Now()
			if err := h.Handle(t.Context(), message()); err != nil {
				t.Errorf("message with a completed effect: got error %v, want nil", err)
			}
			if d := time.Since(began); d > time.Minute {
				t.Errorf("time in the slot: got %v, want at most 1m", d)
			}
			if !strings.Contains(logged(), "level=ERROR msg=\"not remembered\"") {
				t.Errorf("log must contain the error not remembered: got\n%s", logged())
			}
		})
	})

	// At the end of a drain, the middleware still retries Complete for a short time.
	t.Run("briefly after success, with canceled context", func(t *testing.T) {
		for name, endsAfter := range map[string]time.Duration{"before Complete": 0, "during Complete": 20 * time.Second} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &faultyStore{Store: new(idempotent.Memory)}
					store.complete.Store(true)
					var runs atomic.Int32
					ctx, end := context.WithCancel(t.Context())
					h := protect(t, store, idempotent.Config{}, func(context.Context, *reprise.Delivery) error {
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
						t.Errorf("message was handled %d times, want 1", n)
					}
				})
			})
		}
	})

	t.Run("too long with canceled context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &faultyStore{Store: new(idempotent.Memory)}
			store.complete.Store(true)
			log, logged := events()
			ctx, end := context.WithCancel(t.Context())
			h := protect(t, store, idempotent.Config{Logger: log}, func(context.Context, *reprise.Delivery) error {
				time.AfterFunc(20*time.Second, end)
				return nil
			})
			began := time.Now()
			if err := h.Handle(ctx, message()); err != nil {
				t.Errorf("message with a completed effect: got error %v, want nil", err)
			}
			if d := time.Since(began); d != 23*time.Second {
				t.Errorf("time in the slot: got %v, want 23s", d)
			}
			if !strings.Contains(logged(), "not remembered") || strings.Contains(logged(), "context canceled") {
				t.Errorf("log must contain not remembered, but not context canceled: got\n%s", logged())
			}
		})
	})

	t.Run("after failure", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &faultyStore{Store: new(idempotent.Memory)}
			store.release.Store(true)
			log, logged := events()
			h := protect(t, store, idempotent.Config{Logger: log}, func(context.Context, *reprise.Delivery) error { return errHandler })
			if err := h.Handle(t.Context(), message()); err != errHandler {
				t.Errorf("got %v, want the error of the handler", err)
			}
			if !strings.Contains(logged(), "level=WARN msg=\"not released\"") {
				t.Errorf("log must contain the warning not released: got\n%s", logged())
			}
		})
	})
}

// lossyStore performs the first claim but returns an error, as if the response had been lost.
type lossyStore struct {
	*idempotent.Memory
	lost bool
}

func (s *lossyStore) Claim(ctx context.Context, key, token string, lease time.Duration) (idempotent.Claim, error) {
	c, err := s.Memory.Claim(ctx, key, token, lease)
	if !s.lost {
		s.lost = true
		return idempotent.Claim{}, errors.New("connection reset")
	}
	return c, err
}

// hungStore does not respond until the context is canceled.
type hungStore struct{ idempotent.Store }

func (hungStore) Claim(ctx context.Context, _, _ string, _ time.Duration) (idempotent.Claim, error) {
	<-ctx.Done()
	return idempotent.Claim{}, ctx.Err()
}

func (hungStore) Release(ctx context.Context, _, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestMiddlewareWithUnresponsiveStore(t *testing.T) {
	t.Run("at the claim", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := protect(t, hungStore{}, idempotent.Config{Lease: 10 * time.Second}, new(countingHandler).Handle)
			began := time.Now()
			if err := h.Handle(t.Context(), message()); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if d := time.Since(began); d > 15*time.Second {
				t.Errorf("time in the slot: got %v, want at most 15s", d)
			}
		})
	})
	t.Run("during the run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store := &firstClaimStore{hungStore{}, new(idempotent.Memory)}
			began := time.Now()
			h := protect(t, store, idempotent.Config{Lease: 10 * time.Second}, func(ctx context.Context, _ *reprise.Delivery) error {
				<-ctx.Done()
				if d := time.Since(began); d != 10*time.Second {
					t.Errorf("time until the context of the handler was canceled: got %v, want 10s", d)
				}
				return context.Cause(ctx)
			})
			if err := h.Handle(t.Context(), message()); !errors.Is(err, idempotent.ErrLost) {
				t.Error(err)
			}
		})
	})
}

// firstClaimStore responds only to the first claim.
type firstClaimStore struct {
	hungStore
	store idempotent.Store
}

func (s *firstClaimStore) Claim(ctx context.Context, key, token string, lease time.Duration) (idempotent.Claim, error) {
	if s.store == nil {
		return s.hungStore.Claim(ctx, key, token, lease)
	}
	store := s.store
	s.store = nil
	return store.Claim(ctx, key, token, lease)
}
