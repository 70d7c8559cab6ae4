package presettest

import (
	"errors"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/testkit"
)

// Without a preset and without the management API, a message returns only if the name of its queue is its original
// target. Otherwise a redrive and a replay, also of an edited message or to the queue by name, send nothing.
func TestReturnWithoutKnownRouteLosesNothing(t *testing.T) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, _ string) {
		for name, of := range foreignDesigns {
			t.Run(name, func(t *testing.T) {
				f, failedQueue, strategy := of(t, b)
				s := newSharedSystem(t, b, f, failedQueue, strategy)
				s.work(t)
				byName := failed.RedriveConfig{From: s.failedQueue, Limit: 1, Origin: func(*reprise.Message) string { return s.queue }}
				_, sent, err := failed.Redrive(t.Context(), s.client, byName)
				if name == "staking" {
					if sent != 1 || err != nil {
						t.Errorf("got %d sent, %v, want 1", sent, err)
					}
					return
				}
				if _, ok := errors.AsType[*failed.RouteError](err); !ok || sent != 0 {
					t.Errorf("redrive: got %d sent, error %v, want a RouteError", sent, err)
				}
				s.ingest(t, 3)
				replayer, err := failed.NewReplayer(s.client, s.archive, failed.ReplayerConfig{})
				ok(t, err)
				for _, to := range []*failed.Target{nil, {RoutingKey: s.queue}} {
					replay, err := s.archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}, To: to}, "me")
					ok(t, err)
					replay, err = replayer.Finish(t.Context(), replay.ID)
					ok(t, err)
					total, err := s.archive.Count(t.Context(), failed.Filter{Queue: s.queue, States: []failed.State{failed.Failed}})
					ok(t, err)
					if replay.Sent != 0 || replay.Refused != 3 || total.N != 3 {
						t.Errorf("replay to %v: got %+v and %d failed messages, want 3 refused and 3 failed messages", to, replay, total.N)
					}
				}
			})
		}
	})
}
