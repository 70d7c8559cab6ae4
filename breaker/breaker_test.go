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

// attempt asks for leave and reports err, or returns how long to wait.
func attempt(b *breaker.Breaker, err error) time.Duration {
	record, wait := b.Allow()
	if wait == 0 {
		record(err)
	}
	return wait
}

func TestOpensAfterFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{Failures: 3, OpenFor: time.Minute})
		for _, err := range []error{errDown, errDown, nil, errDown, errDown} {
			if wait := attempt(b, err); wait != 0 {
				t.Fatalf("it is %s, %s", b.State(), wait)
			}
		}
		attempt(b, errDown)
		if b.State() != breaker.Open || b.Probing() {
			t.Fatalf("it is %s after three failures in a row", b.State())
		}
		time.Sleep(20 * time.Second)
		if wait := attempt(b, nil); wait != 40*time.Second {
			t.Errorf("it asks to wait %s", wait)
		}
	})
}

func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{Failures: 1, OpenFor: time.Minute, Probes: 2})
		attempt(b, errDown)
		time.Sleep(time.Minute + time.Millisecond)
		if !b.Probing() {
			t.Fatalf("it is %s", b.State())
		}
		attempt(b, nil)
		if !b.Probing() {
			t.Fatal("one probe of two closed it")
		}
		attempt(b, errDown)
		if b.State() != breaker.Open {
			t.Fatal("a probe that failed did not open it")
		}
		time.Sleep(time.Minute + time.Millisecond)
		attempt(b, nil)
		attempt(b, nil)
		if b.State() != breaker.Closed {
			t.Fatalf("it is %s after two probes", b.State())
		}
	})
}

// A probe that did not happen leaves the next one free.
func TestAProbeThatDidNotHappen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(t, breaker.Config{Failures: 1, OpenFor: time.Minute})
		attempt(b, errDown)
		time.Sleep(time.Minute + time.Millisecond)
		record, _ := b.Allow()
		if wait := attempt(b, nil); wait == 0 {
			t.Fatal("two probes at once")
		}
		record(reprise.ErrNotAttempted)
		if wait := attempt(b, nil); wait != 0 || b.State() != breaker.Closed {
			t.Errorf("wait %s, %s", wait, b.State())
		}
	})
}

func TestWhatCounts(t *testing.T) {
	b := newBreaker(t, breaker.Config{Failures: 1})
	attempt(b, fmt.Errorf("wrapped: %w", reprise.Park(errDown)))
	if b.State() != breaker.Closed {
		t.Error("a message that is at fault opened it")
	}
	b = newBreaker(t, breaker.Config{Failures: 1, Counts: func(err error) bool { return !errors.Is(err, errDown) }})
	attempt(b, errDown)
	if b.State() != breaker.Closed {
		t.Error("an error that does not count opened it")
	}
	attempt(b, errors.New("other"))
	if b.State() != breaker.Open {
		t.Error("an error that counts did not open it")
	}
}

// A function of the user's that panics is not the end of probing. An error that
// cannot be looked at is a failure.
func TestFunctionsThatPanic(t *testing.T) {
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
				// Asks until it is let through, as a worker does.
				within := func(err error) (waited time.Duration) {
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
				within(errDown)
				for range 3 { // probes that fail
					if waited := within(errors.New("other")); waited > 2*time.Minute {
						t.Fatalf("no probe for %s", waited)
					}
				}
				if waited := within(nil); waited < 50*time.Second || waited > 2*time.Minute {
					t.Errorf("no probe for %s after one that failed", waited)
				}
				if b.State() != breaker.Closed {
					t.Errorf("it is %s after a probe that succeeded", b.State())
				}
			})
		})
	}
}

// Whatever happens, it opens only after enough failures in a row, and while it is
// open nothing passes.
func TestBreakerProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			failures := rapid.IntRange(1, 4).Draw(rt, "failures")
			b := newBreaker(t, breaker.Config{Failures: failures, OpenFor: time.Minute})
			row := 0
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
					rt.Fatal("an attempt passed an open breaker")
				case before != "open" && wait != 0:
					rt.Fatalf("%s, and an attempt has to wait %s", before, wait)
				case wait > time.Minute:
					rt.Fatalf("it asks to wait %s", wait)
				case wait != 0:
					continue
				}
				if row++; !fails {
					row = 0
				}
				want := breaker.Closed
				if row >= failures || before == breaker.HalfOpen && fails {
					want = breaker.Open
				}
				if b.State() != want {
					rt.Fatalf("%s after %d failures in a row of %d, from %s", b.State(), row, failures, before)
				}
				if want == "open" {
					row = 0
				}
			}
		})
	})
}

func TestConcurrentUse(t *testing.T) {
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
		"Failures -1":  {Failures: -1},
		"OpenFor -1ns": {OpenFor: -1},
		"Probes -1":    {Probes: -1},
	} {
		if _, err := breaker.New(cfg); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := breaker.New(breaker.Config{}); err != nil {
		t.Error(err)
	}
}
