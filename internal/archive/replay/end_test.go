package replay

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/background"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/retry"
)

// slowPublisher accepts all messages immediately, and confirms them after a delay. If the context is canceled first,
// the result is ErrUnconfirmed.
type slowPublisher struct {
	delay time.Duration

	mu      sync.Mutex
	arrived map[string]int
}

func (s *slowPublisher) PublishBatch(ctx context.Context, messages []*reprise.Message) error {
	s.mu.Lock()
	for _, m := range messages {
		s.arrived[m.MessageID]++
	}
	s.mu.Unlock()
	if retry.Sleep(ctx, s.delay) == nil {
		return nil
	}
	failed := &reprise.BatchError{Messages: len(messages)}
	for i := range messages {
		failed.Failed = append(failed.Failed, &reprise.MessageError{Index: i, Err: reprise.ErrUnconfirmed})
	}
	return failed
}

func (s *slowPublisher) check(t *testing.T, want int) {
	t.Helper()
	for id, n := range s.arrived {
		if n != 1 {
			t.Errorf("message %s was sent %d times, want 1", id, n)
		}
	}
	if len(s.arrived) != want {
		t.Errorf("got %d messages, want %d", len(s.arrived), want)
	}
}

// On shutdown, a Replayer waits for the confirms of messages in flight, at most for its DrainTimeout. It keeps its
// lease until then, so that no message is sent twice.
func TestReplayerShutdownWaitsForConfirms(t *testing.T) {
	for _, delay := range []time.Duration{time.Second, background.DefaultLease - time.Second, defaultReplayDrain - time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			a := archivetest.NewMemory()
			a.Fill("orders", 20)
			out := &slowPublisher{delay: delay, arrived: map[string]int{}}
			id := a.Begin(failed.Plan{})
			first := NewFor(out, a, Config{Batch: 5, Lease: time.Second})
			next := NewFor(out, a, Config{Batch: 5})
			ctx, stop := context.WithCancel(t.Context())
			var others sync.WaitGroup
			others.Go(func() {
				time.Sleep(time.Millisecond)
				stop()
				r, err := next.Finish(t.Context(), id)
				if err != nil || r.State != failed.ReplayDone || r.Sent != 20 {
					t.Errorf("second Replayer: got %+v, %v, want done with 20 sent messages", r, err)
				}
			})
			if r, err := first.Finish(ctx, id); !errors.Is(err, context.Canceled) || r.Sent != 5 {
				t.Errorf("first Replayer: got %+v, %v, want context.Canceled and 5 sent messages", r, err)
			}
			others.Wait()
			out.check(t, 20)
		})
	}
}

// A replay is cancelled when the results of all messages in flight are known. Until then no other replay can send
// them.
func TestCancelledReplayWaitsForConfirms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := archivetest.NewMemory()
		a.Fill("orders", 20)
		out := &slowPublisher{delay: 8 * time.Second, arrived: map[string]int{}}
		replayer := NewFor(out, a, Config{Batch: 5})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- replayer.Run(ctx) }()
		id := a.Begin(failed.Plan{})
		replayer.Wake()
		time.Sleep(time.Second)
		archivetest.Must(t, a.EndReplay(t.Context(), id, failed.ReplayCancelled, "enough", "somebody"))
		if r := a.ReplayOf(id); r.State != failed.ReplayCancelling || a.States()[failed.Replaying] != 20 {
			t.Errorf("got replay %+v and states %v, want cancelling with 20 messages replaying", r, a.States())
		}
		if r, err := replayer.Finish(t.Context(), id); err != nil || r.State != failed.ReplayCancelled || r.Sent != 5 || r.Why != "enough" {
			t.Errorf("got replay %+v, %v, want cancelled with 5 sent messages", r, err)
		}
		if a.States()[failed.Replayed] != 5 || a.States()[failed.Failed] != 15 {
			t.Errorf("got states %v, want 5 replayed, 15 failed", a.States())
		}
		if r, err := replayer.Finish(t.Context(), a.Begin(failed.Plan{})); err != nil || r.State != failed.ReplayDone || r.Sent != 15 {
			t.Errorf("got replay %+v, %v, want done with 15 sent messages", r, err)
		}
		stop()
		archivetest.Must(t, <-ended)
		out.check(t, 20)
	})
}

// A killed process does not release its lease. Another process completes the cancellation after the lease has expired.
func TestCancelledReplayEndsAfterLeaseExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := archivetest.NewMemory()
		a.Fill("orders", 20)
		id := a.Begin(failed.Plan{})
		if mine, err := a.ClaimReplay(t.Context(), id, "gone", background.DefaultLease); err != nil || !mine {
			t.Fatal(mine, err)
		}
		archivetest.Must(t, a.EndReplay(t.Context(), id, failed.ReplayCancelled, "enough", "somebody"))
		out := &slowPublisher{arrived: map[string]int{}}
		replayer := NewFor(out, a, Config{})
		began := time.Now()
		r, err := replayer.Finish(t.Context(), id)
		if err != nil || r.State != failed.ReplayCancelled || r.Sent != 0 || a.States()[failed.Failed] != 20 {
			t.Errorf("got replay %+v, %v and states %v, want cancelled with 20 messages failed", r, err, a.States())
		}
		if took := time.Since(began); took < background.DefaultLease || took > background.DefaultLease+2*time.Second {
			t.Errorf("Finish took %s, want the lease", took)
		}
		out.check(t, 0)
	})
}
