package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

// system consists of a worker that fails while the downstream system is broken, an archive of its failed queue, and a
// Replayer.
type system struct {
	*archivetest.Memory
	broker   *reprisetest.Broker
	client   *reprise.Client
	worker   *reprisetest.Worker
	replayer *Replayer

	mu     sync.Mutex
	broken func(m *reprise.Delivery) error
}

func newSystem(t *testing.T, b *reprisetest.Broker) *system {
	t.Helper()
	s := &system{Memory: archivetest.NewMemory(), broker: b, client: b.Client(t, nil)}
	s.worker = b.Work(t, reprise.WorkerConfig{
		Queue: "orders", Policy: reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(time.Second)},
		Topology: topology.Topology{
			Exchanges: []topology.Exchange{{Name: "shop", Kind: topology.Topic}},
			Bindings:  []topology.Binding{{Exchange: "shop", Queue: "orders", RoutingKey: "order.*"}},
		},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.broken == nil {
				return nil
			}
			return s.broken(m)
		}),
	})
	s.Ingest(t)
	s.replayer = NewFor(s.client, s.Memory, Config{Routing: knownOrders})
	return s
}

func (s *system) Ingest(t *testing.T) {
	t.Helper()
	in, err := ingest.NewFor(s.client, s.Memory, ingest.Config{Queues: []string{"orders.failed"}})
	archivetest.Must(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	t.Cleanup(func() {
		s.broker.Heal()
		stop()
		if err := <-ended; err != nil {
			t.Errorf("ingest: %v", err)
		}
	})
}

func (s *system) breaks(f func(*reprise.Delivery) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = f
}

func (s *system) publish(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		s.broker.Publish(t, &reprise.Message{Exchange: "shop", RoutingKey: "order.new", MessageID: fmt.Sprint("id-", i), Body: fmt.Appendf(nil, "order %d", i)})
	}
}

func down(m *reprise.Delivery) error {
	return fmt.Errorf("POST /orders: 503 after %dms", 100+len(m.Errors))
}

func inSystem(t *testing.T, test func(t *testing.T, s *system)) {
	t.Helper()
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) { test(t, newSystem(t, b)) })
}

// The archive stores a failed message with its history. A replay sends the message without the history.
func TestFailedMessageIsArchivedAndReplayed(t *testing.T) {
	inSystem(t, func(t *testing.T, s *system) {
		s.breaks(down)
		s.publish(t, 40)
		s.broker.Drain(t)
		synctest.Wait()
		if s.Open() != 0 || s.broker.Depth(t, "orders.failed") != 0 {
			t.Errorf("got %d unsettled messages and %d in the failed queue, want 0", s.Open(), s.broker.Depth(t, "orders.failed"))
		}
		if len(s.All) != 40 {
			t.Fatalf("got %d archived messages, want 40", len(s.All))
		}
		m := s.All[0]
		if m.Queue != "orders" || m.FailedQueue != "orders.failed" || m.Exchange != "shop" || m.RoutingKey != "order.new" ||
			m.Attempts != 3 || len(m.Errors) != 3 || m.Error != "POST /orders: 503 after 102ms" || m.Reason != "3 attempts made" ||
			m.FirstFailed.IsZero() || !m.LastFailed.After(m.FirstFailed) {
			t.Errorf("archived message: got %+v, want the history of 3 attempts in orders", m)
		}

		s.breaks(nil)
		before := len(s.worker.Attempts())
		id := s.Begin(failed.Plan{})
		r, err := s.replayer.Finish(t.Context(), id)
		archivetest.Must(t, err)
		s.broker.Drain(t)
		if r.State != failed.ReplayDone || r.Sent != 40 || s.States()[failed.Replayed] != 40 {
			t.Errorf("got replay %+v and states %v, want done with 40 sent messages", r, s.States())
		}
		again := s.worker.Attempts()[before:]
		if len(again) != 40 {
			t.Fatalf("got %d attempts, want 40", len(again))
		}
		for i, x := range again {
			m := x.Delivery
			if m.Attempt != 1 || m.Errors != nil || m.Exchange != "shop" || m.RoutingKey != "order.new" || m.MessageID != s.All[i].Properties.MessageID ||
				len(m.Headers) != 0 {
				t.Errorf("replayed message %d: got ID %s, attempt %d, exchange %q, key %q, headers %v, want attempt 1 through shop with order.new, without headers", i, m.MessageID, m.Attempt, m.Exchange, m.RoutingKey, m.Headers)
			}
		}
	})
}

// A replay stops if its messages fail with their previous error, and the unsent messages return to state failed. If
// they fail with a different error, the replay continues.
func TestReplayStopsOnRepeatedFailure(t *testing.T) {
	for name, tc := range map[string]struct {
		broken func(*reprise.Delivery) error
		plan   failed.Plan
		stops  bool
	}{
		"same error":            {down, failed.Plan{Rate: 1}, true},
		"same but for a number": {func(*reprise.Delivery) error { return reprise.Park(errors.New("POST /orders: 503 after 7ms")) }, failed.Plan{Rate: 1}, true},
		"another error":         {func(*reprise.Delivery) error { return reprise.Park(errors.New("no such customer")) }, failed.Plan{Rate: 1}, false},
		"IgnoreSame":            {down, failed.Plan{Rate: 1, IgnoreSame: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inSystem(t, func(t *testing.T, s *system) {
				s.breaks(down)
				s.publish(t, 60)
				s.broker.Drain(t)
				s.breaks(tc.broken)
				r, err := s.replayer.Finish(t.Context(), s.Begin(tc.plan))
				archivetest.Must(t, err)
				s.broker.Drain(t)
				synctest.Wait()
				if !tc.stops {
					if r.State != failed.ReplayDone || r.Sent != 60 || len(s.Bodies()) != 120 {
						t.Errorf("got replay %+v and %d archived messages, want 120", r, len(s.Bodies()))
					}
					return
				}
				if r.State != failed.ReplayStopped || r.Sent == 0 || r.Sent == r.Total || !strings.Contains(r.Why, "with the same error: POST /orders: 503") {
					t.Errorf("got replay %+v, want stopped because of the same error", r)
				}
				states := s.States()
				if sent := int(r.Sent); states[failed.Replayed] != sent || states[failed.Failed] != 60 || states[failed.Replaying] != 0 || len(s.Bodies()) != 60+sent {
					t.Errorf("got %d sent messages and states %v, want %d messages replayed and 60 failed", sent, states, sent)
				}
			})
		})
	}
}

// The replay sends the canary first. If the canary fails with any error, or has no outcome, the replay does not send the
// others.
func TestReplaySendsCanaryFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		broken   func(*reprise.Delivery) error
		succeeds bool // the worker reports the success of the canary
		sent     int64
		why      string
		within   time.Duration
	}{
		"succeeds":   {nil, true, 20, "", 10 * time.Second},
		"no outcome": {nil, false, 1, "the canary is unproven: it has no outcome after 5m0s", 5*time.Minute + time.Second},
		"fails":      {func(*reprise.Delivery) error { return reprise.Park(errors.New("no such customer")) }, false, 1, "the canary failed again: no such customer", 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inSystem(t, func(t *testing.T, s *system) {
				s.breaks(down)
				s.publish(t, 20)
				s.broker.Drain(t)
				s.breaks(tc.broken)
				s.Succeeds = tc.succeeds
				before, began := len(s.worker.Attempts()), time.Now()
				r, err := s.replayer.Finish(t.Context(), s.Begin(failed.Plan{Canary: 5 * time.Minute}))
				archivetest.Must(t, err)
				took := time.Since(began)
				s.broker.Drain(t)
				if n := int64(len(s.worker.Attempts()) - before); r.Sent != tc.sent || n != tc.sent {
					t.Fatalf("got %d attempts, want %d; replay: %+v", n, tc.sent, r)
				}
				if (r.State == failed.ReplayStopped) != (tc.why != "") || r.Why != tc.why || took > tc.within {
					t.Errorf("replay after %s: got %+v, want within %s: %q", took, r, tc.within, tc.why)
				}
			})
		})
	}
}

// Even if confirms or connections are lost, each message is archived once and replayed at least once.
func TestArchiveAndReplaySurviveBrokerFaults(t *testing.T) {
	for name, fault := range map[string]func(t *testing.T, b *reprisetest.Broker){
		"none":          func(*testing.T, *reprisetest.Broker) {},
		"lost acks":     func(_ *testing.T, b *reprisetest.Broker) { b.LoseAcks(3) },
		"lost confirms": func(_ *testing.T, b *reprisetest.Broker) { b.LoseConfirms(3) },
		"lost messages": func(_ *testing.T, b *reprisetest.Broker) { b.LosePublishes(3) },
		"nacks":         func(_ *testing.T, b *reprisetest.Broker) { b.Nack(3) },
		"cut":           func(_ *testing.T, b *reprisetest.Broker) { b.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			inSystem(t, func(t *testing.T, s *system) {
				s.breaks(func(*reprise.Delivery) error { return reprise.Park(errors.New("broken")) })
				s.publish(t, 30)
				fault(t, s.broker)
				s.broker.Drain(t)
				synctest.Wait()
				s.broker.Heal()
				kept := len(s.Bodies())
				if kept < 30 { // the worker may have parked a message twice, and each copy counts
					t.Fatalf("got %d archived messages, want at least 30", kept)
				}
				s.breaks(nil)
				before := len(s.worker.Attempts())
				id := s.Begin(failed.Plan{Rate: 100})
				s.broker.Publish(t, &reprise.Message{RoutingKey: "orders", MessageID: "other"})
				fault(t, s.broker)
				r, err := s.replayer.Finish(t.Context(), id)
				archivetest.Must(t, err)
				s.broker.Drain(t)
				arrived := map[string]bool{}
				for _, x := range s.worker.Attempts()[before:] {
					arrived[x.Delivery.MessageID] = true
				}
				if r.State != failed.ReplayDone || s.States()[failed.Replayed] != kept || len(arrived) != 31 {
					t.Errorf("got %d different messages, want 31; states %v, replay %+v", len(arrived), s.States(), r)
				}
			})
		})
	}
}

// Each message is stored once, even if the archive is down for longer than the acknowledgement timeout of the broker.
func TestIngestSurvivesLongArchiveOutage(t *testing.T) {
	inSystem(t, func(t *testing.T, s *system) {
		synctest.Wait() // the consumer has started
		s.Failing(func(string) error { return archivetest.ErrDown }, nil)
		s.breaks(func(*reprise.Delivery) error { return reprise.Park(errors.New("broken")) })
		s.publish(t, 150) // more than the prefetch
		time.Sleep(100 * time.Minute)
		s.broker.Cut()
		time.Sleep(100 * time.Minute)
		if n := len(s.Bodies()); n != 0 {
			t.Fatalf("got %d messages in an archive that is down, want 0", n)
		}
		s.Failing(nil, nil)
		s.broker.Drain(t)
		synctest.Wait()
		counts := map[string]int{}
		for _, body := range s.Bodies() {
			counts[body]++
		}
		if len(counts) != 150 || len(s.Bodies()) != 150 || s.Open() != 0 {
			t.Errorf("got %d messages, %d different, %d unsettled; want 150, 150, 0", len(s.Bodies()), len(counts), s.Open())
		}
	})
}

// A missing target stops the replay. The unsent messages return to state failed.
func TestReplayToMissingTargetStops(t *testing.T) {
	inSystem(t, func(t *testing.T, s *system) {
		s.breaks(down)
		s.publish(t, 5)
		s.broker.Drain(t)
		r, err := s.replayer.Finish(t.Context(), s.Begin(failed.Plan{To: &failed.Target{RoutingKey: "nowhere"}}))
		archivetest.Must(t, err)
		if r.State != failed.ReplayStopped || !strings.Contains(r.Why, `cannot send message 1: reprise: unroutable: queue "nowhere" does not exist`) || s.States()[failed.Failed] != 5 {
			t.Errorf("got replay %+v and states %v, want stopped and 5 messages failed", r, s.States())
		}
	})
}

// Run finds replays that other processes begin, executes them concurrently, and stops a replay that another process
// cancels.
func TestReplayerRunsReplaysOfOtherProcesses(t *testing.T) {
	inSystem(t, func(t *testing.T, s *system) {
		s.breaks(down)
		s.publish(t, 100)
		s.broker.Drain(t)
		s.breaks(nil)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.replayer.Run(ctx) }()
		slow := s.Begin(failed.Plan{Rate: 1})
		time.Sleep(30 * time.Second)
		archivetest.Must(t, s.EndReplay(t.Context(), slow, failed.ReplayCancelled, "enough", "somebody"))
		r, err := s.replayer.Finish(t.Context(), slow)
		archivetest.Must(t, err)
		if r.State != failed.ReplayCancelled || r.Sent < 25 || r.Sent > 31 || s.States()[failed.Replayed] != int(r.Sent) || s.States()[failed.Failed] != 100-int(r.Sent) {
			t.Errorf("got replay %+v and states %v, want cancelled with 25 to 31 sent messages", r, s.States())
		}
		rest := s.Begin(failed.Plan{})
		s.replayer.Wake()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		s.broker.Drain(t)
		if r := s.ReplayOf(rest); r.State != failed.ReplayDone || s.States()[failed.Replayed] != 100 {
			t.Errorf("got replay %+v and states %v, want done and 100 messages replayed", r, s.States())
		}
		if _, err := s.replayer.Finish(t.Context(), 99); !errors.Is(err, failed.ErrNotFound) {
			t.Errorf("Finish of an unknown replay: got error %v, want ErrNotFound", err)
		}
		stop()
		archivetest.Must(t, <-ended)
	})
}

// With a ramp, the rate increases from step to step.
func TestReplayRamp(t *testing.T) {
	inSystem(t, func(t *testing.T, s *system) {
		s.breaks(down)
		s.publish(t, 200)
		s.broker.Drain(t)
		s.breaks(nil)
		before, began := len(s.worker.Attempts()), time.Now()
		_, err := s.replayer.Finish(t.Context(), s.Begin(failed.Plan{Ramp: true, Rate: 10}))
		archivetest.Must(t, err)
		s.broker.Drain(t)
		perStep := make([]int, 5)
		for _, x := range s.worker.Attempts()[before:] {
			perStep[min(4, int(x.Began.Sub(began)/rampStep))]++
		}
		if diff := cmp.Diff([]int{10, 20, 50, 100, 20}, perStep); diff != "" {
			t.Error(diff)
		}
	})
}

// Only one of several Replayers executes a replay at a time. If that Replayer stops, another continues.
func TestOnlyOneReplayerExecutesReplay(t *testing.T) {
	inSystem(t, func(t *testing.T, s *system) {
		s.breaks(down)
		s.publish(t, 300)
		s.broker.Drain(t)
		s.breaks(nil)
		before := len(s.worker.Attempts())
		id := s.Begin(failed.Plan{Rate: 5})
		var running []context.CancelFunc
		ended := make(chan error)
		for range 3 {
			r := NewFor(s.client, s.Memory, Config{Routing: knownOrders})
			ctx, stop := context.WithCancel(t.Context())
			running = append(running, stop)
			go func() { ended <- r.Run(ctx) }()
		}
		for _, stop := range running[:2] {
			time.Sleep(15 * time.Second)
			stop()
			archivetest.Must(t, <-ended)
		}
		r, err := s.replayer.Finish(t.Context(), id)
		archivetest.Must(t, err)
		running[2]()
		archivetest.Must(t, <-ended)
		s.broker.Drain(t)
		if n := len(s.worker.Attempts()) - before; n != 300 || r.State != failed.ReplayDone || r.Sent != 300 {
			t.Errorf("got %d attempts, want 300; replay: %+v", n, r)
		}
		if took := r.Ended.Sub(r.Begun); took < 59*time.Second || took > 2*time.Minute {
			t.Errorf("300 messages at 5 per second: took %s, want about 1m", took)
		}
	})
}
