package breaker_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/breaker"
)

var errDown = errors.New("down")

func newBreaker(t testing.TB, cfg breaker.Config) *breaker.Breaker {
	t.Helper()
	b, err := breaker.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// attempt records err if the breaker admits an attempt. Otherwise, it returns the time to wait.
func attempt(b *breaker.Breaker, err error) time.Duration {
	record, wait := b.Allow()
	if wait == 0 {
		record(err)
	}
	return wait
}

func TestBreakerOpensAfterConsecutiveFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{Failures: 3, OpenFor: time.Minute})
		for _, err := range []error{errDown, errDown, nil, errDown, errDown} {
			if wait := attempt(b, err); wait != 0 {
				t.Fatalf("wait in state %s: got %s, want 0", b.State(), wait)
			}
		}
		attempt(b, errDown)
		if b.State() != breaker.Open || b.Probing() {
			t.Fatalf("state after three consecutive failures: got %s, want open", b.State())
		}
		time.Sleep(20 * time.Second)
		if wait := attempt(b, nil); wait != 40*time.Second {
			t.Errorf("wait: got %s, want 40s", wait)
		}
	})
}

func TestBreakerClosesAfterSuccessfulProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{Failures: 1, OpenFor: time.Minute, Probes: 2})
		attempt(b, errDown)
		time.Sleep(time.Minute + time.Millisecond)
		if !b.Probing() {
			t.Fatalf("state: got %s, want half-open", b.State())
		}
		attempt(b, nil)
		if !b.Probing() {
			t.Fatal("the first of two probes closed the breaker")
		}
		attempt(b, errDown)
		if b.State() != breaker.Open {
			t.Fatal("a failed probe did not open the breaker")
		}
		time.Sleep(time.Minute + time.Millisecond)
		attempt(b, nil)
		attempt(b, nil)
		if b.State() != breaker.Closed {
			t.Fatalf("state after two successful probes: got %s, want closed", b.State())
		}
	})
}

// The breaker admits another probe if the previous probe ended with ErrNotAttempted.
func TestBreakerRepeatsProbeThatWasNotAttempted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{Failures: 1, OpenFor: time.Minute})
		attempt(b, errDown)
		time.Sleep(time.Minute + time.Millisecond)
		record, _ := b.Allow()
		if wait := attempt(b, nil); wait == 0 {
			t.Fatal("the breaker admitted two concurrent probes")
		}
		record(reprise.ErrNotAttempted)
		if wait := attempt(b, nil); wait != 0 || b.State() != breaker.Closed {
			t.Errorf("repeated probe: got wait %s and state %s, want 0 and closed", wait, b.State())
		}
	})
}

func TestBreakerIgnoresErrorsThatDoNotCount(t *testing.T) {
	b := newBreaker(t, breaker.Config{Failures: 1})
	attempt(b, fmt.Errorf("wrapped: %w", reprise.Park(errDown)))
	if b.State() != breaker.Closed {
		t.Error("a parked message opened the breaker")
	}
	b = newBreaker(t, breaker.Config{Failures: 1, Counts: func(err error) bool { return !errors.Is(err, errDown) }})
	attempt(b, errDown)
	if b.State() != breaker.Closed {
		t.Error("an error that does not count opened the breaker")
	}
	attempt(b, errors.New("other"))
	if b.State() != breaker.Open {
		t.Error("an error that counts did not open the breaker")
	}
}

// The breaker continues to admit probes after a panic in Counts or OnChange. If Counts panics, the error counts as a
// failure.
func TestBreakerProbesAfterPanic(t *testing.T) {
	for name, cfg := range map[string]breaker.Config{
		"Counts": {Counts: func(err error) bool {
			if err != errDown {
				panic("counts")
			}
			return true
		}},
		"OnChange": {OnChange: func(_, _ breaker.State) { panic("change") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg.Failures, cfg.OpenFor = 1, time.Minute
				b := newBreaker(t, cfg)
				// Like a worker, admit calls Allow until the breaker admits the attempt.
				admit := func(err error) (waited time.Duration) {
					began := time.Now()
					for done := false; !done && time.Since(began) < time.Hour; time.Sleep(time.Second) {
						func() {
							defer func() { _ = recover() }()
							record, wait := b.Allow()
							if wait == 0 {
								done = true
								record(err)
							}
						}()
					}
					return time.Since(began)
				}
				admit(errDown)
				for range 3 { // failed probes
					if waited := admit(errors.New("other")); waited > 2*time.Minute {
						t.Fatalf("wait for a probe: got %s, want at most 2m", waited)
					}
				}
				if waited := admit(nil); waited < 50*time.Second || waited > 2*time.Minute {
					t.Errorf("wait for the probe after a failed probe: got %s, want about 1m", waited)
				}
				if b.State() != breaker.Closed {
					t.Errorf("state after a successful probe: got %s, want closed", b.State())
				}
			})
		})
	}
}

// A breaker opens after Config.Failures consecutive failures or after a failed probe, and at no other time. An open
// breaker does not admit attempts.
func TestBreakerProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			failures := rapid.IntRange(1, 4).Draw(rt, "failures")
			b := newBreaker(t, breaker.Config{Failures: failures, OpenFor: time.Minute})
			consecutive := 0
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				time.Sleep(time.Duration(rapid.IntRange(0, 90).Draw(rt, "seconds")) * time.Second)
				before := b.State()
				fails := rapid.Bool().Draw(rt, "fails")
				var err error
				if fails {
					err = errDown
				}
				wait := attempt(b, err)
				switch {
				case before == "open" && wait == 0:
					rt.Fatal("an open breaker admitted an attempt")
				case before != "open" && wait != 0:
					rt.Fatalf("wait in state %s: got %s, want 0", before, wait)
				case wait > time.Minute:
					rt.Fatalf("wait: got %s, want at most 1m", wait)
				case wait != 0:
					continue
				}
				if consecutive++; !fails {
					consecutive = 0
				}
				want := breaker.Closed
				if consecutive >= failures || before == breaker.HalfOpen && fails {
					want = breaker.Open
				}
				if b.State() != want {
					rt.Fatalf("state after %d consecutive failures (Failures %d, previous state %s): got %s, want %s", consecutive, failures, before, b.State(), want)
				}
				if want == "open" {
					consecutive = 0
				}
			}
		})
	})
}

func TestBreakerConcurrentUse(t *testing.T) {
	b := newBreaker(t, breaker.Config{Failures: 2, OpenFor: time.Nanosecond})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 200 {
				if i%2 == 0 {
					attempt(b, errDown)
				} else {
					attempt(b, nil)
				}
				b.Probing()
			}
		})
	}
	wg.Wait()
}

func TestValidate(t *testing.T) {
	for text, cfg := range map[string]breaker.Config{
		"Config.Failures must be between 0 and 2147483647: got -1 (0 means 5)": {Failures: -1},
		"Config.OpenFor must not be negative: got -1ns (0 means 30s)":          {OpenFor: -1},
		"Config.Probes must be between 0 and 2147483647: got -1 (0 means 1)":   {Probes: -1},
	} {
		if _, err := breaker.New(cfg); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("New: got error %v, want %q", err, text)
		}
	}
	if _, err := breaker.New(breaker.Config{}); err != nil {
		t.Error(err)
	}
}
