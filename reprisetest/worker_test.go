package reprisetest_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

func TestAttemptIncludesMiddleware(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		began := time.Now()
		w := b.Work(t, reprise.WorkerConfig{
			Queue: "orders", Policy: every(time.Hour, 5),
			Middleware: []reprise.Middleware{reprise.Immediate(2, time.Second)},
			Handler: handler(func(m *reprise.Delivery) error {
				time.Sleep(time.Second)
				switch m.Attempt {
				case 1:
					return errScripted
				case 2:
					panic("at the disco")
				case 3:
					runtime.Goexit()
				}
				return nil
			}),
		})
		b.Publish(t, order("1"))
		b.Drain(t)
		got := w.Attempts()
		if len(got) != 4 {
			t.Fatalf("got %d attempts, want 4: %v", len(got), got.Errors())
		}
		panicked, _ := errors.AsType[*reprise.PanicError](got[1].Err)
		if got[0].Err != errScripted || panicked == nil || panicked.Value != "at the disco" || !errors.Is(got[2].Err, reprise.ErrHandlerExited) || got[3].Err != nil {
			t.Errorf("errors: got %v, want errScripted, a panic, ErrHandlerExited and nil", got.Errors())
		}
		type timing struct {
			At, Took time.Duration
			Body     string
		}
		var timings []timing
		for _, a := range got {
			timings = append(timings, timing{a.Began.Sub(began), a.Took, string(a.Delivery.Body)})
		}
		want := []timing{
			{0, 5 * time.Second, "order 1"}, // three runs and two pauses
			{time.Hour + 5*time.Second, time.Second, "order 1"},
			{2*time.Hour + 6*time.Second, time.Second, "order 1"},
			{3*time.Hour + 7*time.Second, time.Second, "order 1"},
		}
		if diff := cmp.Diff(want, timings); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if diff := cmp.Diff([]time.Duration{time.Hour, time.Hour, time.Hour}, got.Delays()); diff != "" {
			t.Errorf("delays: -want +got:\n%s", diff)
		}
	})
}

func TestAttemptsContainInputOfHandler(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: handler(func(m *reprise.Delivery) error {
			m.Body, m.MessageID = nil, "another"
			return nil
		})})
		b.Publish(t, order("1"))
		if got := w.Await(t, 1).Of("1"); len(got) != 1 || string(got[0].Delivery.Body) != "order 1" {
			t.Errorf("attempts of the message: got %d, want 1 with the body \"order 1\"", len(got))
		}
	})
}

func TestDelaysAreComputedPerMessage(t *testing.T) {
	at := time.Now()
	attempt := func(id string, begin, took time.Duration) reprisetest.Attempt {
		return reprisetest.Attempt{Delivery: &reprise.Delivery{Message: reprise.Message{MessageID: id}}, Began: at.Add(begin), Took: took}
	}
	all := reprisetest.Attempts{
		attempt("a", 0, time.Second),
		attempt("b", time.Second, 0),
		attempt("a", 4*time.Second, 0),
		attempt("b", 3*time.Second, 0),
		attempt("a", 9*time.Second, 0),
	}
	for id, want := range map[string][]time.Duration{
		"a": {3 * time.Second, 5 * time.Second}, "b": {2 * time.Second}, "c": nil,
	} {
		if diff := cmp.Diff(want, all.Of(id).Delays()); diff != "" {
			t.Errorf("message %s: %s", id, diff)
		}
	}
	if diff := cmp.Diff([]time.Duration{3 * time.Second, 2 * time.Second, 5 * time.Second}, all.Delays()); diff != "" {
		t.Error(diff)
	}
}

func TestAwaitWaitsUntilAttemptIsSettled(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		w := b.Work(t, retrying(time.Hour))
		later(t, time.Minute, func() { b.Publish(t, order("1")) })
		if got := w.Await(t, 1); len(got) != 1 || got[0].Err != errScripted {
			t.Errorf("attempts: got %v, want 1 with errScripted", got)
		}
		for _, q := range b.Queues() {
			if q.Unacked > 0 || q.Name == "orders" && q.Ready > 0 {
				t.Errorf("queue must not have an unsettled message: got %+v", q)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		got := try(t, func(f *fake) {
			b := reprisetest.Config{Timeout: time.Hour}.New(f)
			w := b.Work(f, retrying(time.Hour))
			b.Publish(f, order("1"))
			w.Await(f, 3)
		})
		if want := `reprisetest: timed out after 1h0m0s: got 2 attempts at messages of "orders", want 3`; got.String() != want {
			t.Errorf("got failure %q, want %q", got, want)
		}
	})
}

func TestStopRequeuesUnstartedDeliveries(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		slow := handler(func(*reprise.Delivery) error { time.Sleep(10 * time.Second); return nil })
		w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: slow})
		b.Publish(t, order("1"), order("2"), order("3"))
		b.Advance(time.Second)
		for range 2 {
			if err := w.Stop(); err != nil {
				t.Error(err)
			}
		}
		if n := b.Depth(t, "orders"); n != 2 || len(w.Attempts()) != 1 {
			t.Errorf("got %d messages in the queue after %d attempts, want 2 after 1", n, len(w.Attempts()))
		}
		other := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: slow})
		b.Drain(t)
		if n := len(other.Attempts()); n != 2 {
			t.Errorf("next worker made %d attempts, want 2", n)
		}
	})
}

func TestStopReturnsErrorOfWorker(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		release := make(chan struct{})
		w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: handler(func(*reprise.Delivery) error { <-release; return nil })})
		b.Publish(t, order("1"))
		if err := w.Stop(); !errors.Is(err, reprise.ErrDrainTimeout) {
			t.Errorf("Stop: got %v, want ErrDrainTimeout", err)
		}
		close(release)
	})
}

// If one of two workers on a queue has stopped, new messages in the queue are still not at rest.
func TestStopOfOneOfTwoWorkers(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		client := b.Client(t, nil)
		one, other := b.WorkWith(t, client, retrying(time.Hour)), b.WorkWith(t, client, retrying(time.Hour))
		if err := one.Stop(); err != nil {
			t.Error(err)
		}
		b.Refuse(time.Minute)
		b.Cut()
		b.Publish(t, order("1"))
		b.Drain(t)
		if n := len(other.Attempts()); n != 2 {
			t.Errorf("got %d attempts, want 2", n)
		}
	})
}

func TestWorkFailsImmediatelyWithInvalidConfig(t *testing.T) {
	t.Parallel()
	for want, config := range map[string]reprise.WorkerConfig{
		"reprisetest: reprise: WorkerConfig.Queue must not be empty (set the queue to consume)": {Handler: failing(0)},
		`reprisetest: worker of "orders" has stopped: `: {
			Queue: "orders", Handler: failing(0),
			Topology: topology.Topology{Queues: []topology.Queue{{Name: "orders", Args: topology.Table{"x-message-ttl": "soon"}}}},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			got := try(t, func(f *fake) { reprisetest.New(f).Work(f, config) })
			if len(got.failures) == 0 || len(got.failures[0]) < len(want) || got.failures[0][:len(want)] != want {
				t.Errorf("got failure %q, want %q", got, want)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		got := try(t, func(f *fake) {
			b := reprisetest.Config{Timeout: time.Hour}.New(f)
			client := b.Client(f, nil)
			b.Refuse(2 * time.Hour)
			b.Cut()
			b.WorkWith(f, client, retrying(0))
		})
		if want := `reprisetest: timed out after 1h0m0s: worker of "orders" does not consume`; got.failures[0] != want {
			t.Errorf("got failure %q, want %q", got, want)
		}
	})
}

// At the end of a test, the package stops workers before it closes their clients, and does not report failures that the
// shutdown causes.
func TestEndOfTestReportsNoFailures(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(f *fake, b *reprisetest.Broker){
		"running handler": func(f *fake, b *reprisetest.Broker) {
			b.Work(f, reprise.WorkerConfig{Queue: "orders", Handler: reprise.HandlerFunc(func(ctx context.Context, _ *reprise.Delivery) error {
				<-ctx.Done()
				return ctx.Err()
			})})
			b.Publish(f, order("1"))
		},
		"blocked publishers": func(f *fake, b *reprisetest.Broker) {
			b.Work(f, retrying(time.Hour))
			client := b.Client(f, nil)
			b.Publish(f, order("1"))
			b.Block()
			go client.Publish(context.Background(), order("2"))
			b.Advance(time.Second)
		},
		"blocked copy": func(f *fake, b *reprisetest.Broker) {
			b.Declare(f, topology.Buckets{}.Topology("orders"))
			b.Publish(f, order("1"))
			b.Block()
			b.Work(f, retrying(time.Hour)).Await(f, 1)
		},
		"lost connections": func(f *fake, b *reprisetest.Broker) {
			b.Work(f, retrying(time.Hour))
			b.Refuse(time.Hour)
			b.Cut()
			b.Advance(time.Minute)
		},
		"waiting retry": func(f *fake, b *reprisetest.Broker) {
			b.Work(f, retrying(time.Hour))
			b.Publish(f, order("1"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := try(t, func(f *fake) {
					begin(f, reprisetest.New(f))
					f.Fatalf("assertion failed")
				})
				if got.String() != "assertion failed" {
					t.Errorf("failures: got\n%s\nwant assertion failed", got)
				}
			})
		})
	}
}

// If the handler modifies a message, the recorded message does not change.
func TestAttemptsKeepOriginalMessage(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: handler(func(m *reprise.Delivery) error {
			delete(m.Headers, "tenant")
			m.Body[0] = 'X'
			return nil
		})})
		m := order("1")
		m.Headers = map[string]any{"tenant": "acme"}
		b.Publish(t, m)
		b.Drain(t)
		given := w.Attempts()[0].Delivery
		if given.Headers["tenant"] != "acme" || string(given.Body) != "order 1" {
			t.Errorf("recorded message: got body %q, headers %v, want \"order 1\" and tenant acme", given.Body, given.Headers)
		}
	})
}
