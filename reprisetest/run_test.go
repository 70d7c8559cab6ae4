package reprisetest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/reprisetest"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// child is the name of an environment variable. It is set if the test binary runs itself to observe a failing test.
const child = "REPRISETEST_CHILD"

// failures contains failing tests with their expected output.
var failures = map[string]struct {
	test func(t *testing.T)
	want []string
}{
	"fatal": {
		func(t *testing.T) {
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				b.Work(t, retrying(4*time.Hour))
				b.Publish(t, order("1"))
				t.Fatal("assertion failed")
			})
		},
		[]string{
			"assertion failed",
			"events (times since the start):", "at=0s level=WARN msg=retry queue=orders message_id=1 attempt=1 exchange=\"\" routing_key=orders delay=4h0m0s",
			"messages:", "1 ready, the next expires in 4h0m0s, no consumers",
		},
	},
	"handler never returns": {
		func(t *testing.T) {
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				never := make(chan struct{})
				b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: handler(func(*reprise.Delivery) error { <-never; return nil })})
				b.Publish(t, order("1"))
				t.Fatal("assertion failed")
			})
		},
		[]string{
			"assertion failed",
			`handler of "orders" is still running at the end of the test, although its context is canceled`,
			"goroutines remain at the end of the test", "reprisetest_test.init.func", "run_test.go:",
		},
	},
	"client is not closed": {
		func(t *testing.T) {
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				if _, err := reprise.Dial(t.Context(), b.URL(), &reprise.Config{Dial: b.DialContext}); err != nil {
					t.Fatal(err)
				}
			})
		},
		[]string{"goroutines remain at the end of the test (close the clients that the test has dialed", "amqpconn.(*Link).reconnect"},
	},
	"test never ends": {
		func(t *testing.T) {
			reprisetest.Config{Limit: 24 * time.Hour}.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				b.Work(t, retrying(time.Hour))
				if _, err := reprise.Dial(t.Context(), b.URL(), &reprise.Config{Dial: b.DialContext}); err != nil {
					t.Fatal(err)
				}
				<-make(chan struct{})
			})
		},
		[]string{"test timed out after 24h0m0s of virtual time (Config.Limit)", "msg=consuming queue=orders", "chan receive"},
	},
}

func TestDrainBeyondTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got := try(t, func(f *fake) {
			b := reprisetest.Config{Limit: time.Hour}.New(f)
			b.Work(f, retrying(4*time.Hour))
			b.Publish(f, order("1"))
			b.Drain(f)
		})
		for _, want := range []string{"reprisetest: Drain: timed out after 1h0m0s", "reprisetest: test timed out after 1h0m0s of virtual time (Config.Limit)"} {
			if !strings.Contains(got.String(), want) {
				t.Errorf("failure does not contain %q:\n%s", want, got)
			}
		}
	})
}

// A failing test reports the reason and any remaining resources, and does not affect other tests.
func TestFailedTestReportsReason(t *testing.T) {
	if name := os.Getenv(child); name != "" {
		t.Run("failing", failures[name].test)
		t.Run("next", func(t *testing.T) { fmt.Println("next test has run") })
		return
	}
	t.Parallel()
	for name, c := range failures {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFailedTestReportsReason$", "-test.timeout=1m")
			cmd.Env = append(os.Environ(), child+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Error("test did not fail")
			}
			for _, want := range append(c.want, "--- FAIL: TestFailedTestReportsReason/failing", "next test has run") {
				if !strings.Contains(string(out), want) {
					t.Errorf("output does not contain %q", want)
				}
			}
			if strings.Contains(string(out), "panic:") {
				t.Error("test panicked")
			}
			if t.Failed() {
				t.Logf("output:\n%s", out)
			}
		})
	}
}

// Concurrent tests with the same queue names are independent.
func TestParallelTestsAreIndependent(t *testing.T) {
	t.Parallel()
	for n := range 20 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
				began := time.Now()
				delay := time.Duration(n+1) * time.Hour
				w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: failing(3), Policy: every(delay, 3)})
				var ids []string
				for i := range n + 1 {
					ids = append(ids, fmt.Sprint(n, i))
					b.Publish(t, order(fmt.Sprint(n, i)))
				}
				if n%2 == 0 {
					b.Cut()
					b.Refuse(time.Minute)
					b.Block()
					later(t, time.Minute, b.Unblock)
				}
				b.Drain(t)
				if took := time.Since(began); took < 2*delay || took > 2*delay+2*time.Minute {
					t.Errorf("virtual time of the test: got %s, want %s to %s", took, 2*delay, 2*delay+2*time.Minute)
				}
				for _, a := range w.Attempts() {
					if !slices.Contains(ids, a.Delivery.MessageID) {
						t.Errorf("message: got %s of another test, want one of %v", a.Delivery.MessageID, ids)
					}
				}
				if got := len(b.Parked(t, "orders")); got < n+1 {
					t.Errorf("%d messages were parked, want %d", got, n+1)
				}
			})
		})
	}
}

// Run does not report a goroutine that returns within a minute after the context of the test is canceled.
func TestRunWaitsForGoroutines(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		go func() {
			<-t.Context().Done()
			time.Sleep(30 * time.Second)
		}()
	})
}

var (
	_ reprisetest.TB = (*testing.T)(nil)
	_ reprisetest.TB = (*testing.B)(nil)
	_ reprisetest.TB = (*rapid.T)(nil)
)

// Delays in virtual time are exact to the millisecond.
func TestDelaysAreExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Map(rapid.Int64Range(1, 100*3_600_000), func(ms int64) time.Duration {
			return time.Duration(ms) * time.Millisecond
		}), 1, 4).Draw(t, "delays")
		var got []time.Duration
		reprisetest.Run(new(testing.T), func(t *testing.T, b *reprisetest.Broker) {
			w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: handler(func(m *reprise.Delivery) error {
				if m.Attempt <= len(want) {
					return reprise.RetryAfter(want[m.Attempt-1], errScripted)
				}
				return nil
			})})
			b.Publish(t, order("1"))
			b.Drain(t)
			got = w.Attempts().Delays()
		})
		if !slices.Equal(got, want) {
			t.Fatalf("delays: got %v, want %v", got, want)
		}
	})
}

// Drain, Publish and other methods are safe for concurrent use.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Concurrency: 4, Handler: failing(1), Policy: every(time.Hour, 2)})
		var running sync.WaitGroup
		for n := range 8 {
			running.Go(func() {
				for i := range 5 {
					b.Publish(t, order(fmt.Sprint(n, i)))
					b.Drain(t)
					b.Depth(t, "orders")
					b.Advance(time.Minute)
				}
			})
		}
		running.Wait()
		b.Drain(t)
		if n := len(w.Attempts()); n != 2*8*5 {
			t.Errorf("attempts: got %d, want %d", n, 2*8*5)
		}
	})
}

func TestDialContext(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errScripted)
		if _, err := b.DialContext(ctx, "tcp", "anywhere"); err == nil {
			t.Error("DialContext succeeded with a canceled context")
		}
		b.Refuse(time.Minute)
		if _, err := b.DialContext(t.Context(), "tcp", "anywhere"); err == nil || !strings.Contains(err.Error(), "connection refused (by Broker.Refuse, for another 1m0s)") {
			t.Errorf("got %v, want connection refused", err)
		}
		b.Advance(time.Minute)
		conn, err := b.DialContext(t.Context(), "tcp", "anywhere")
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	})
}
