package replay

import (
	"math"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A message that cannot be sent to any target returns to state failed, with the reason. All other messages and the
// canary proceed.
func TestUnsendableMessageDoesNotBlockOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*failed.Message)
		want  string
	}{
		"headers too large": {func(m *failed.Message) {
			m.Edited = &failed.Content{Headers: topology.Table{"h": strings.Repeat("h", 200_000)}}
		}, "headers must have at most"},
		"integer too large": {func(m *failed.Message) {
			m.Edited = &failed.Content{Headers: topology.Table{"h": uint64(math.MaxUint64)}}
		}, "does not fit into AMQP's signed 64 bits"},
		"long property":      {func(m *failed.Message) { m.Properties.Type = strings.Repeat("t", 300) }, "type must have at most 255 bytes: got 300"},
		"unknown work queue": {func(m *failed.Message) { m.Queue = m.FailedQueue }, "queue in which the message failed is unknown"},
		"expired task of Celery": {func(m *failed.Message) {
			m.Headers = topology.Table{"task": "charge", "id": "1", "root_id": "1", "expires": "1999-01-01T00:00:00Z"}
		}, "Celery: the worker would drop the task, because it expired at 1999-01-01T00:00:00Z"},
	} {
		for _, plan := range []failed.Plan{{}, {Canary: time.Minute}, {Rate: 10}} {
			t.Run(name, func(t *testing.T) {
				inSystem(t, func(t *testing.T, s *system) {
					s.breaks(down)
					s.Succeeds = true
					s.publish(t, 30)
					s.broker.Drain(t)
					s.breaks(nil)
					for _, i := range []int{0, 17, 29} {
						tc.spoil(s.All[i])
					}
					before := len(s.worker.Attempts())
					r, err := s.replayer.Finish(t.Context(), s.Begin(plan))
					archivetest.Must(t, err)
					s.broker.Drain(t)
					if r.State != failed.ReplayDone || r.Sent != 27 || r.Refused != 3 || !strings.Contains(r.Why, "cannot send message 1: ") || !strings.Contains(r.Why, tc.want) {
						t.Errorf("got replay %+v, want error %q", r, tc.want)
					}
					if n := len(s.worker.Attempts()) - before; n != 27 || s.States()[failed.Failed] != 3 || s.States()[failed.Replayed] != 27 {
						t.Errorf("got %d messages, want 27; states %v", n, s.States())
					}
					for _, i := range []int{0, 17, 29} {
						if m := s.All[i]; m.State != failed.Failed || !strings.Contains(m.Refused, tc.want) {
							t.Errorf("message %d: got state %s, reason %q, want state failed, reason %q", m.ID, m.State, m.Refused, tc.want)
						}
					}
				})
			})
		}
	}
}

// If the broker refuses a message because of its content, the replay refuses only that message. If the target or the
// Publisher is the cause, the replay ends, because all messages are affected.
func TestReplayEndsOnTargetErrorsOnly(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		stops bool
	}{
		"too large":     {&reprise.TooLargeError{Size: 2, Limit: 1}, false},
		"invalid":       {reprise.ErrInvalidMessage, false},
		"406":           {&reprise.RefusedError{Code: amqp.PreconditionFailed}, false},
		"no such queue": {&reprise.UnroutableError{RoutingKey: "orders", Code: amqp.NoRoute}, true},
		"no permission": {&reprise.RefusedError{Code: amqp.AccessRefused}, true},
	} {
		a := archivetest.NewMemory()
		a.Fill("orders", 12)
		r := NewFor(archivetest.PublisherFunc(func(m *reprise.Message) error {
			if m.MessageID == "id-4" {
				return tc.err
			}
			return nil
		}), a, Config{Batch: 5})
		got, err := r.Finish(t.Context(), a.Begin(failed.Plan{}))
		archivetest.Must(t, err)
		if tc.stops && (got.State != failed.ReplayStopped || got.Sent != 4 || got.Refused != 0 || a.States()[failed.Failed] != 8) ||
			!tc.stops && (got.State != failed.ReplayDone || got.Sent != 11 || got.Refused != 1 || a.States()[failed.Failed] != 1) {
			t.Errorf("%s: got replay %+v and states %v, want stopped: %t", name, got, a.States(), tc.stops)
		}
		if !strings.Contains(got.Why, "cannot send message 5: "+tc.err.Error()) {
			t.Errorf("%s: got reason %q, want %v", name, got.Why, tc.err)
		}
	}
}

// The headers of a message in the failed queue can fit into a frame, but exceed it after the broker has added headers.
func TestReplayOfMessageThatFillsItsFrame(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		work, from := w.Queue("work", nil), w.Queue("failed", nil)
		ingests(w, w.Client, from)
		headers := map[string]any{topology.HeaderQueue: work}
		w.Publish(from, headers, "first")
		archivetest.Must(t, w.Raw.PublishWithContext(t.Context(), "", from, false, false, amqp.Publishing{
			Headers: amqp.Table{topology.HeaderQueue: work, "h": strings.Repeat("h", 128_000)}, MessageId: "large", Body: []byte("large"),
		}))
		testkit.Eventually(t, archivetest.Longest, func() bool { return len(w.Archived()) == 2 })
		w.Publish(from, headers, "last")
		testkit.Eventually(t, archivetest.Longest, func() bool { return len(w.Archived()) == 3 })
		r, err := w.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "me")
		archivetest.Must(t, err)
		replayer := New(w.Client, w.Archive, Config{})
		r, err = replayer.Finish(t.Context(), r.ID)
		archivetest.Must(t, err)
		if r.State != failed.ReplayDone || r.Sent != 2 || r.Refused != 1 || len(w.Take(work)) != 2 {
			t.Errorf("got replay %+v, want done with 2 sent, 1 refused", r)
		}
		refused, _, err := w.Archive.List(t.Context(), failed.Filter{Refused: true}, store.Page{})
		archivetest.Must(t, err)
		if len(refused) != 1 || refused[0].MessageID != "large" || refused[0].State != failed.Failed || !strings.Contains(refused[0].Refused, "headers must have at most") {
			t.Fatalf("got refused messages %+v, want only \"large\", failed because of its headers", refused)
		}
		if m, err := w.Archive.Get(t.Context(), refused[0].ID); err != nil || m.Refused != refused[0].Refused {
			t.Errorf("got message %+v, %v, want refused %q", m, err, refused[0].Refused)
		}
	})
}
