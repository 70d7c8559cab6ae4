package idempotent_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/breaker"
	"github.com/reprisemq/reprise/idempotent"
)

var errHandler = errors.New("payment service is busy")

func message() *reprise.Delivery {
	return &reprise.Delivery{Message: reprise.Message{MessageID: "order-1"}, Queue: "orders", Attempt: 1}
}

// protect wraps a handler in the middleware.
func protect(t testing.TB, store idempotent.Store, cfg idempotent.Config, f reprise.HandlerFunc) reprise.Handler {
	t.Helper()
	once, err := idempotent.Middleware(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return once(f)
}

// countingHandler is a handler that counts its runs and returns a given error.
type countingHandler struct {
	runs atomic.Int32
	then func(run int) error
}

func (c *countingHandler) Handle(context.Context, *reprise.Delivery) error {
	run := int(c.runs.Add(1))
	if c.then == nil {
		return nil
	}
	return c.then(run)
}

// events returns a logger and a function that returns its events.
func events() (log *slog.Logger, logged func() string) {
	var mu sync.Mutex
	var b strings.Builder
	log = slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return b.Write(p)
	}), nil))
	return log, func() string {
		mu.Lock()
		defer mu.Unlock()
		return b.String()
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestDuplicateIsNotHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inner countingHandler
		log, logged := events()
		h := protect(t, new(idempotent.Memory), idempotent.Config{Retention: time.Hour, Logger: log}, inner.Handle)
		for range 3 {
			if err := h.Handle(t.Context(), message()); err != nil {
				t.Error(err)
			}
		}
		if n := inner.runs.Load(); n != 1 {
			t.Errorf("message was handled %d times, want 1", n)
		}
		if want := "msg=duplicate queue=orders message_id=order-1 key=orders/order-1"; strings.Count(logged(), want) != 2 {
			t.Errorf("log does not contain %q twice:\n%s", want, logged())
		}
		time.Sleep(time.Hour)
		if err := h.Handle(t.Context(), message()); err != nil || inner.runs.Load() != 2 {
			t.Errorf("message after the retention: got error %v and %d runs, want nil and 2", err, inner.runs.Load())
		}
	})
}

func TestFailedMessageIsHandledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := countingHandler{then: func(run int) error {
			switch run {
			case 1:
				return errHandler
			case 2:
				return reprise.Park(errHandler)
			}
			return nil
		}}
		h := protect(t, new(idempotent.Memory), idempotent.Config{}, inner.Handle)
		if err := h.Handle(t.Context(), message()); err != errHandler {
			t.Errorf("got %v, want the error of the handler", err)
		}
		if err := h.Handle(t.Context(), message()); fmt.Sprintf("%T", err) != "*reprise.ParkError" {
			t.Errorf("got %T, want ParkError", err)
		}
		for range 2 {
			if err := h.Handle(t.Context(), message()); err != nil {
				t.Error(err)
			}
		}
		if n := inner.runs.Load(); n != 3 {
			t.Errorf("message was handled %d times, want 3", n)
		}
	})
}

func TestPanicReleasesKey(t *testing.T) {
	for name, leave := range map[string]func(){
		"panic":  func() { panic("payment service is broken") },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := countingHandler{then: func(run int) error {
					if run == 1 {
						leave()
					}
					return nil
				}}
				h := protect(t, new(idempotent.Memory), idempotent.Config{}, inner.Handle)
				var value any
				returned := false
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() { value = recover() }()
					_ = h.Handle(t.Context(), message())
					returned = true
				})
				wg.Wait()
				if returned || (name == "panic") != (value == "payment service is broken") {
					t.Errorf("handler must panic or exit as before: got returned %t and panic value %v", returned, value)
				}
				if err := h.Handle(t.Context(), message()); err != nil || inner.runs.Load() != 2 {
					t.Errorf("next attempt: got error %v and %d runs, want nil and 2", err, inner.runs.Load())
				}
			})
		})
	}
}

// While a handler runs, duplicates of its message are retried, first when the lease could have expired, and then with
// growing delays.
func TestDuplicateOfRunningMessageIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := countingHandler{then: func(int) error {
			time.Sleep(3 * time.Hour)
			return nil
		}}
		h := protect(t, new(idempotent.Memory), idempotent.Config{Lease: time.Minute}, inner.Handle)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := h.Handle(t.Context(), message()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		duplicate := message()
		var delays []time.Duration
		for {
			err := h.Handle(t.Context(), duplicate)
			if err == nil {
				break
			}
			var later *reprise.RetryAfterError
			var noted *reprise.AnnotatedError
			if !errors.As(err, &later) || !errors.As(err, &noted) || !errors.Is(err, idempotent.ErrBusy) {
				t.Fatalf("duplicate: got error %v, want ErrBusy with a delay and a header", err)
			}
			delays = append(delays, later.Delay.Round(time.Minute))
			duplicate.Headers = noted.Headers // as in the retry copy
			time.Sleep(later.Delay)
		}
		wg.Wait()
		if n := inner.runs.Load(); n != 1 {
			t.Errorf("message was handled %d times, want 1", n)
		}
		// A lease that is extended every 20 s has 40 to 60 s left.
		if len(delays) > 9 || delays[0] != time.Minute || slices.Max(delays) != time.Hour {
			t.Errorf("delays of retries: got %v, want at most 9, from 1m to 1h", delays)
		}
	})
}

func TestMiddlewareAcceptsAnyBusyHeader(t *testing.T) {
	for _, name := range []string{idempotent.HeaderBusy, "x-idempotent-busy"} {
		t.Run(name, func(t *testing.T) { testBusyHeader(t, name) })
	}
}

func testBusyHeader(t *testing.T, name string) {
	synctest.Test(t, func(t *testing.T) {
		for value, want := range map[any]time.Duration{
			int64(-1):               time.Minute,
			int64(1):                2 * time.Minute,
			int32(2):                4 * time.Minute, // clients in other languages write smaller types
			uint8(3):                8 * time.Minute,
			int64(math.MaxInt64):    time.Hour,
			int64(math.MinInt64):    time.Minute,
			"many":                  time.Minute,
			time.Time{}:             time.Minute,
			[1]int64{math.MaxInt64}: time.Minute,
		} {
			store := new(idempotent.Memory)
			h := protect(t, store, idempotent.Config{}, func(_ context.Context, m *reprise.Delivery) error {
				if len(m.Headers) != 1 || m.Headers["own"] != "kept" {
					t.Errorf("headers: got %v, want only own", m.Headers)
				}
				return nil
			})
			m := message()
			m.Headers = map[string]any{name: value, "own": "kept"}
			if c, err := store.Claim(t.Context(), "orders/order-1", "another", time.Minute); c.State != idempotent.Claimed {
				t.Fatalf("Claim: got %v (%v), want claimed", c.State, err)
			}
			var later *reprise.RetryAfterError
			var noted *reprise.AnnotatedError
			if err := h.Handle(t.Context(), m); !errors.As(err, &later) || later.Delay != want || !errors.As(err, &noted) {
				t.Errorf("header %v: got %+v, want delay %s", value, later, want)
			}
			if n, ok := noted.Headers[idempotent.HeaderBusy].(int64); !ok || n < 1 {
				t.Errorf("next header after %v: got %d, want at least 1", value, n)
			}
			time.Sleep(time.Minute)
			if err := h.Handle(t.Context(), m); err != nil {
				t.Error(err)
			}
		}
	})
}

// A crashed process does not release its key.
func TestMessageWaitsForLeaseAfterCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(idempotent.Memory)
		if c, err := store.Claim(t.Context(), "orders/order-1", "of a dead process", time.Minute); c.State != idempotent.Claimed {
			t.Fatalf("Claim: got %v (%v), want claimed", c.State, err)
		}
		time.Sleep(15 * time.Second)
		var inner countingHandler
		h := protect(t, store, idempotent.Config{}, inner.Handle)
		var later *reprise.RetryAfterError
		if err := h.Handle(t.Context(), message()); !errors.As(err, &later) || later.Delay != 45*time.Second {
			t.Fatalf("message during the lease: got %v with %+v, want delay 45s", err, later)
		}
		time.Sleep(later.Delay)
		if err := h.Handle(t.Context(), message()); err != nil || inner.runs.Load() != 1 {
			t.Errorf("message after the lease: got error %v and %d runs, want nil and 1", err, inner.runs.Load())
		}
	})
}

// Another process claims the key of a running handler.
func TestLostClaimCancelsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(keyRecorder)
		log, logged := events()
		h := protect(t, store, idempotent.Config{Lease: time.Minute, Logger: log}, func(ctx context.Context, _ *reprise.Delivery) error {
			key, token := store.last()
			if err := store.Release(t.Context(), key, token); err != nil {
				t.Error(err)
			}
			if c, err := store.Memory.Claim(t.Context(), key, "another", time.Hour); c.State != idempotent.Claimed {
				t.Errorf("Claim: got %v (%v), want claimed", c.State, err)
			}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), idempotent.ErrLost) {
				t.Errorf("context of the handler: got cause %v, want ErrLost", context.Cause(ctx))
			}
			return nil // the effect had already happened
		})
		began := time.Now()
		if err := h.Handle(t.Context(), message()); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d != 20*time.Second {
			t.Errorf("time until the lost claim was detected: got %v, want 20s, a third of the lease", d)
		}
		if !strings.Contains(logged(), "claim lost") || !strings.Contains(logged(), "not remembered") {
			t.Errorf("log must contain claim lost and not remembered: got\n%s", logged())
		}
		if c, err := store.Claim(t.Context(), "orders/order-1", "another", time.Minute); c.State != idempotent.Claimed {
			t.Errorf("claim of the other token: got %v (%v), want claimed", c.State, err)
		}
	})
}

// At the end of a drain the handler's context is canceled, but the store still receives the result.
func TestMiddlewareCallsStoreAfterContextIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, result := range []error{nil, errHandler} {
			store := new(idempotent.Memory)
			ctx, cancel := context.WithCancel(t.Context())
			h := protect(t, store, idempotent.Config{}, func(context.Context, *reprise.Delivery) error {
				cancel()
				return result
			})
			if err := h.Handle(ctx, message()); err != result {
				t.Error(err)
			}
			want := map[bool]idempotent.State{true: idempotent.Done, false: idempotent.Claimed}[result == nil]
			if c, err := store.Claim(t.Context(), "orders/order-1", "another", time.Minute); c.State != want {
				t.Errorf("after result %v: got %v (%v), want %v", result, c.State, err, want)
			}
		}
	})
}

func TestConfig(t *testing.T) {
	if _, err := idempotent.Middleware(nil, idempotent.Config{}); err == nil {
		t.Error("Middleware accepted a nil store")
	}
	for _, tc := range []struct {
		cfg  idempotent.Config
		want string
	}{
		{idempotent.Config{Lease: time.Millisecond}, "must be at least 1s"},
		{idempotent.Config{Lease: -time.Minute}, "must be at least 1s"},
		{idempotent.Config{Retention: -1}, "(0 means 168h"},
		{idempotent.Config{Keyless: 2}, "ParkKeyless or HandleKeyless"},
	} {
		if _, err := idempotent.Middleware(new(idempotent.Memory), tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, want %q", tc.cfg, err, tc.want)
		}
	}
}

// A busy duplicate does not affect a breaker. It does not open the breaker, does not reset its failures, and does not
// count as a probe.
func TestBreakerIgnoresBusyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		h := protect(t, new(idempotent.Memory), idempotent.Config{}, func(context.Context, *reprise.Delivery) error {
			<-free
			return nil
		})
		var wg sync.WaitGroup
		wg.Go(func() { _ = h.Handle(t.Context(), message()) })
		synctest.Wait()
		busy := h.Handle(t.Context(), message())
		if !errors.Is(busy, idempotent.ErrBusy) || errors.Is(errHandler, reprise.ErrNotAttempted) {
			t.Fatalf("busy key: got error %v, want ErrBusy", busy)
		}

		b, err := breaker.New(breaker.Config{Failures: 2, OpenFor: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		logged := func(err error, want breaker.State) {
			t.Helper()
			record, _ := b.Allow()
			record(err)
			if b.State() != want {
				t.Errorf("after %v: got state %s, want %s", err, b.State(), want)
			}
		}
		logged(busy, breaker.Closed)
		logged(busy, breaker.Closed)
		logged(errHandler, breaker.Closed)
		logged(busy, breaker.Closed)
		logged(errHandler, breaker.Open)
		time.Sleep(time.Minute + time.Millisecond)
		logged(busy, breaker.HalfOpen)
		logged(nil, breaker.Closed)
		close(free)
		wg.Wait()
	})
}
