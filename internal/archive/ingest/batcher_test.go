package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

// taker simulates a worker that adds messages and acknowledges them after they are stored.
type taker struct {
	*batcher
	stop func()
}

func newTaker(t *testing.T, a *archivetest.Memory, most int) *taker {
	t.Helper()
	b := newBatcher(a, most, slog.New(slog.DiscardHandler))
	return &taker{batcher: b, stop: b.start(t.Context())}
}

// give adds a message. ack is the result of the acknowledgement.
func (k *taker) give(ctx context.Context, body string, redelivered bool, ack error) <-chan error {
	stored := make(chan error, 1)
	go func() {
		m := &reprise.Delivery{Message: reprise.Message{Body: []byte(body)}, Redelivered: redelivered}
		err := k.add(ctx, m, failed.Arrived{Message: failed.Message{FailedQueue: "q.failed", Content: failed.Content{Body: m.Body}}, Redelivered: redelivered})
		if err == nil {
			k.acked(m, ack)
		}
		stored <- err
	}()
	synctest.Wait() // to preserve the order
	return stored
}

// A message that is not stored when its worker stops must not be acknowledged.
func TestBatcherReturnsErrorForUnstoredMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := archivetest.NewMemory()
		a.Failing(func(string) error { return archivetest.ErrDown }, nil)
		k := newTaker(t, a, 10)
		defer k.stop()
		stopped, stop := context.WithCancelCause(t.Context())
		result := k.give(stopped, "1", false, nil)
		time.Sleep(time.Minute)
		stop(archivetest.ErrDown)
		if err := <-result; !errors.Is(err, archivetest.ErrDown) {
			t.Errorf("add: got error %v, want %v", err, archivetest.ErrDown)
		}
	})
}

// The store is unavailable for an hour. The batcher holds all messages in order, and then stores each message once,
// including messages that were stored before the error.
func TestBatcherKeepsMessagesWhileStoreIsDown(t *testing.T) {
	for name, fault := range map[string]func(a *archivetest.Memory, fail func(string) error){
		"not stored": func(a *archivetest.Memory, fail func(string) error) { a.Failing(fail, nil) },
		"stored without a response": func(a *archivetest.Memory, fail func(string) error) {
			n := 0
			a.Failing(func(call string) error {
				if n++; n > 1 {
					return fail(call)
				}
				return nil
			}, fail)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := archivetest.NewMemory()
				down := time.Now().Add(time.Hour)
				fault(a, func(string) error {
					if time.Now().Before(down) {
						return archivetest.ErrDown
					}
					return nil
				})
				k := newTaker(t, a, 10)
				defer k.stop()
				var stored []<-chan error
				var want []string
				for i := range 35 {
					want = append(want, fmt.Sprint(i))
					stored = append(stored, k.give(t.Context(), want[i], false, nil))
				}
				time.Sleep(59 * time.Minute)
				synctest.Wait()
				for i, s := range stored {
					if len(s) != 0 {
						t.Fatalf("message %d: add returned while the store was down", i)
					}
				}
				if n := a.Called(); n > 500 {
					t.Errorf("store that is down: got %d calls in an hour, want at most 500", n)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				for _, s := range stored {
					archivetest.Must(t, <-s)
				}
				synctest.Wait()
				if diff := cmp.Diff(want, a.Bodies()); diff != "" || a.Open() != 0 {
					t.Errorf("got %d unsettled messages, want 0; bodies: %s", a.Open(), diff)
				}
			})
		})
	}
}

// The batcher reports that the store is available, even if the store recovers between two messages that are stored
// one by one.
func TestBatcherReportsRecoveryBetweenMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := archivetest.NewMemory()
		failures := 2
		a.Failing(func(string) error {
			if failures--; failures >= 0 {
				return archivetest.ErrDown
			}
			return nil
		}, nil)
		var errs error
		b := newBatcher(a, 8, slog.New(slog.DiscardHandler))
		b.onAttempt = func(err error) { errs = err }
		k := &taker{batcher: b, stop: b.start(t.Context())}
		defer k.stop()
		first := k.give(t.Context(), "first", false, nil)
		second := k.give(t.Context(), "second", false, nil)
		time.Sleep(time.Hour)
		archivetest.Must(t, <-first)
		archivetest.Must(t, <-second)
		synctest.Wait()
		if errs != nil {
			t.Errorf("store reported as unavailable after all messages were stored: %v", errs)
		}
	})
}

// The batcher reports that the store is available, even if the store recovers after the last message, when it records
// the acks.
func TestBatcherReportsRecoveryWithoutWaitingMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := archivetest.NewMemory()
		failures := 3
		a.Failing(func(call string) error {
			if call != "Settled" {
				return nil
			}
			if failures--; failures >= 0 {
				return archivetest.ErrDown
			}
			return nil
		}, nil)
		var errs []error
		b := newBatcher(a, 8, slog.New(slog.DiscardHandler))
		b.onAttempt = func(err error) { errs = append(errs, err) }
		k := &taker{batcher: b, stop: b.start(t.Context())}
		defer k.stop()
		archivetest.Must(t, <-k.give(t.Context(), "only", false, nil))
		time.Sleep(time.Hour)
		synctest.Wait()
		if a.Open() != 0 || len(errs) < 4 || errs[len(errs)-1] != nil {
			t.Errorf("got %d unsettled messages, want 0; reported errors: %v", a.Open(), errs)
		}
	})
}

// A message that the store refuses does not block other messages. The batcher retries it, and the worker requeues it on
// shutdown.
func TestRefusedMessageDoesNotBlockOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := archivetest.NewMemory()
		k := newTaker(t, a, 8)
		ctx, cancel := context.WithCancelCause(t.Context())
		a.Failing(func(string) error { return archivetest.ErrDown }, nil)
		var poisoned, others []<-chan error
		for i := range 20 {
			if i%10 == 3 || i%10 == 4 {
				poisoned = append(poisoned, k.give(ctx, "poison", false, nil))
				continue
			}
			others = append(others, k.give(ctx, fmt.Sprint(i), false, nil))
		}
		a.Failing(nil, nil)
		time.Sleep(10 * time.Minute)
		for _, s := range others {
			archivetest.Must(t, <-s)
		}
		before := a.Called()
		time.Sleep(time.Hour)
		if n := a.Called() - before; n < 4*50 || n > 4*70 {
			t.Errorf("4 refused messages: got %d attempts in an hour, want about 240", n)
		}
		archivetest.Must(t, <-k.give(ctx, "late", false, nil))
		gone := errors.New("worker ends")
		cancel(gone)
		for _, s := range poisoned {
			if err := <-s; !errors.Is(err, gone) {
				t.Errorf("refused message: got error %v, want %v", err, gone)
			}
		}
		k.stop()
		if n := len(a.Bodies()); n != 17 || a.Open() != 0 {
			t.Errorf("got %d stored and %d unsettled messages, want 17 and 0", n, a.Open())
		}
	})
}

// The archive stores the right number of equal messages, even if acks are lost.
func TestBatcherStoresEqualMessagesSeparately(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := archivetest.NewMemory()
		k := newTaker(t, a, 10)
		lost := errors.New("connection lost")
		archivetest.Must(t, <-k.give(t.Context(), "twin", false, nil))
		archivetest.Must(t, <-k.give(t.Context(), "twin", false, lost))
		archivetest.Must(t, <-k.give(t.Context(), "twin", false, lost))
		// The broker redelivers these two messages, and a fourth message whose first delivery did not reach the
		// batcher.
		for range 3 {
			archivetest.Must(t, <-k.give(t.Context(), "twin", true, nil))
		}
		k.stop()
		if got := len(a.Bodies()); got != 4 || a.Open() != 0 {
			t.Errorf("got %d stored and %d unsettled messages, want 4 and 0", got, a.Open())
		}
	})
}

// If a message waits in the batcher when its connection is lost, the batcher stores it before the redelivery, and the
// archive stores only one of the two.
func TestBatcherStoresWaitingMessageBeforeItsRedelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := archivetest.NewMemory()
		k := newTaker(t, a, 3)
		a.Failing(func(string) error { return archivetest.ErrDown }, nil)
		lost := errors.New("connection lost")
		var stored []<-chan error
		for i := range 5 {
			stored = append(stored, k.give(t.Context(), fmt.Sprint(i), false, lost))
		}
		time.Sleep(time.Hour)
		for i := range 5 {
			stored = append(stored, k.give(t.Context(), fmt.Sprint(i), true, nil))
		}
		a.Failing(nil, nil)
		for _, s := range stored {
			archivetest.Must(t, <-s)
		}
		k.stop()
		got := a.Bodies()
		slices.Sort(got)
		if diff := cmp.Diff([]string{"0", "1", "2", "3", "4"}, got); diff != "" || a.Open() != 0 {
			t.Errorf("got %d unsettled messages, want 0; bodies: %s", a.Open(), diff)
		}
	})
}

// A batcher that holds both deliveries of a message stores only one of them.
func TestBatcherStoresOneOfTwoWaitingDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := archivetest.NewMemory()
		k := newTaker(t, a, 100)
		slow := make(chan struct{})
		a.Failing(func(string) error { <-slow; return nil }, nil)
		lost := errors.New("connection lost")
		stored := []<-chan error{k.give(t.Context(), "slow", false, nil)}
		for _, redelivered := range []bool{false, true, true} {
			for _, body := range []string{"one", "two"} {
				stored = append(stored, k.give(t.Context(), body, redelivered, lost))
			}
		}
		for _, body := range []string{"one", "two"} {
			stored = append(stored, k.give(t.Context(), body, true, nil))
		}
		close(slow)
		for _, s := range stored {
			archivetest.Must(t, <-s)
		}
		k.stop()
		if diff := cmp.Diff([]string{"slow", "one", "two"}, a.Bodies()); diff != "" || a.Open() != 0 {
			t.Errorf("got %d unsettled messages, want 0; bodies: %s", a.Open(), diff)
		}
	})
}

// Each message is stored once even if a call of the store fails, before or after it takes effect.
func TestIngestSurvivesStoreFailureAtAnyCall(t *testing.T) {
	for _, done := range []bool{false, true} {
		for step, failed := 1, true; failed; step++ {
			synctest.Test(t, func(t *testing.T) {
				a := archivetest.NewMemory()
				failed = false
				calls := 0
				fail := func(string) error {
					if calls++; calls != step {
						return nil
					}
					failed = true
					return archivetest.ErrDown
				}
				if done {
					a.Failing(nil, fail)
				} else {
					a.Failing(fail, nil)
				}
				k := newTaker(t, a, 4)
				var stored []<-chan error
				for i := range 10 {
					stored = append(stored, k.give(t.Context(), fmt.Sprint(i), i%3 == 0, nil))
				}
				for _, s := range stored {
					archivetest.Must(t, <-s)
				}
				k.stop()
				got := a.Bodies()
				slices.Sort(got)
				if len(got) != 10 || len(slices.Compact(got)) != 10 || a.Open() != 0 {
					t.Fatalf("call %d (done: %t): got %d unsettled messages, want 0; bodies: %v", step, done, a.Open(), got)
				}
			})
		}
	}
}
