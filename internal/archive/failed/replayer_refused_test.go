package failed

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A message that cannot be sent to any target returns to state failed, with the reason. All other messages and the
// canary proceed.
func TestUnsendableMessageDoesNotBlockOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*Message)
		want  string
	}{
		"headers too large":  {func(m *Message) { m.Edited = &Content{Headers: topology.Table{"h": strings.Repeat("h", 200_000)}} }, "headers must have at most"},
		"integer too large":  {func(m *Message) { m.Edited = &Content{Headers: topology.Table{"h": uint64(math.MaxUint64)}} }, "does not fit into AMQP's signed 64 bits"},
		"long property":      {func(m *Message) { m.Properties.Type = strings.Repeat("t", 300) }, "type must have at most 255 bytes: got 300"},
		"unknown work queue": {func(m *Message) { m.Queue = m.FailedQueue }, "queue in which the message failed is unknown"},
	} {
		for _, plan := range []Plan{{}, {Canary: time.Minute}, {Rate: 10}} {
			t.Run(name, func(t *testing.T) {
				inSystem(t, func(t *testing.T, s *system) {
					s.breaks(down)
					s.succeeds = true
					s.publish(t, 30)
					s.broker.Drain(t)
					s.breaks(nil)
					for _, i := range []int{0, 17, 29} {
						tc.spoil(s.all[i])
					}
					before := len(s.worker.Attempts())
					r, err := s.replayer.Finish(t.Context(), s.begin(plan))
					must(t, err)
					s.broker.Drain(t)
					if r.State != ReplayDone || r.Sent != 27 || r.Refused != 3 || !strings.Contains(r.Why, "cannot send message 1: ") || !strings.Contains(r.Why, tc.want) {
						t.Errorf("got replay %+v, want error %q", r, tc.want)
					}
					if n := len(s.worker.Attempts()) - before; n != 27 || s.states()[Failed] != 3 || s.states()[Replayed] != 27 {
						t.Errorf("got %d messages, want 27; states %v", n, s.states())
					}
					for _, i := range []int{0, 17, 29} {
						if m := s.all[i]; m.State != Failed || !strings.Contains(m.Refused, tc.want) {
							t.Errorf("message %d: got state %s, reason %q, want state failed, reason %q", m.ID, m.State, m.Refused, tc.want)
						}
					}
				})
			})
		}
	}
}

// publisherFunc is a publisher that passes each message to a function instead of a broker, and returns its errors.
type publisherFunc func(m *reprise.Message) error

func (f publisherFunc) PublishBatch(_ context.Context, messages []*reprise.Message) error {
	failed := &reprise.BatchError{Messages: len(messages)}
	for i, m := range messages {
		if err := f(m); err != nil {
			failed.Failed = append(failed.Failed, &reprise.MessageError{Index: i, MessageID: m.MessageID, Err: err})
		}
	}
	if len(failed.Failed) == 0 {
		return nil
	}
	return failed
}

// If the broker refuses a message because of its content, the replay refuses only that message. If the target or the
// publisher is the cause, the replay ends, because all messages are affected.
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
		a := newMemory()
		a.fill("orders", 12)
		r, err := newReplayer(publisherFunc(func(m *reprise.Message) error {
			if m.MessageID == "id-4" {
				return tc.err
			}
			return nil
		}), a, ReplayerConfig{Batch: 5})
		must(t, err)
		got, err := r.Finish(t.Context(), a.begin(Plan{}))
		must(t, err)
		if tc.stops && (got.State != ReplayStopped || got.Sent != 4 || got.Refused != 0 || a.states()[Failed] != 8) ||
			!tc.stops && (got.State != ReplayDone || got.Sent != 11 || got.Refused != 1 || a.states()[Failed] != 1) {
			t.Errorf("%s: got replay %+v and states %v, want stopped: %t", name, got, a.states(), tc.stops)
		}
		if !strings.Contains(got.Why, "cannot send message 5: "+tc.err.Error()) {
			t.Errorf("%s: got reason %q, want %v", name, got.Why, tc.err)
		}
	}
}

// The headers of a message in the failed queue can fit into a frame, but exceed it after the broker has added headers.
func TestReplayOfMessageThatFillsItsFrame(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := newWire(t, b.URL)
		work, from := w.queue("work", nil), w.queue("failed", nil)
		w.ingest(w.client, from)
		headers := map[string]any{topology.HeaderQueue: work}
		w.publish(from, headers, "first")
		must(t, w.raw.PublishWithContext(t.Context(), "", from, false, false, amqp.Publishing{
			Headers: amqp.Table{topology.HeaderQueue: work, "h": strings.Repeat("h", 128_000)}, MessageId: "large", Body: []byte("large"),
		}))
		testkit.Eventually(t, longest, func() bool { return len(w.archived()) == 2 })
		w.publish(from, headers, "last")
		testkit.Eventually(t, longest, func() bool { return len(w.archived()) == 3 })
		r, err := w.archive.BeginReplay(t.Context(), Plan{Filter: Filter{All: true}}, "me")
		must(t, err)
		replayer, err := NewReplayer(w.client, w.archive, ReplayerConfig{})
		must(t, err)
		r, err = replayer.Finish(t.Context(), r.ID)
		must(t, err)
		if r.State != ReplayDone || r.Sent != 2 || r.Refused != 1 || len(w.take(work)) != 2 {
			t.Errorf("got replay %+v, want done with 2 sent, 1 refused", r)
		}
		refused, _, err := w.archive.List(t.Context(), Filter{Refused: true}, Page{})
		must(t, err)
		if len(refused) != 1 || refused[0].MessageID != "large" || refused[0].State != Failed || !strings.Contains(refused[0].Refused, "headers must have at most") {
			t.Fatalf("got refused messages %+v, want only \"large\", failed because of its headers", refused)
		}
		if m, err := w.archive.Get(t.Context(), refused[0].ID); err != nil || m.Refused != refused[0].Refused {
			t.Errorf("got message %+v, %v, want refused %q", m, err, refused[0].Refused)
		}
	})
}
