package replay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit"
)

// If some consumers of a queue do not report outcomes, the outcomes of their messages stay pending. The outcomes of
// messages that a Reprise worker receives are known.
func TestOutcomesWithNonReportingConsumers(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		p := newReplayEnv(t, b.URL, 20, reprise.Policy{MaxAttempts: 3})
		p.stop()
		conn, err := amqp.Dial(b.URL)
		archivetest.Must(t, err)
		defer conn.Close()
		old, err := conn.Channel()
		archivetest.Must(t, err)
		const held = 8
		archivetest.Must(t, old.Qos(held, 0, false))
		deliveries, err := old.Consume(p.work, "old", false, false, false, false, nil)
		archivetest.Must(t, err)
		r, err := p.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "me")
		archivetest.Must(t, err)
		var theirs []string
		var last uint64
		for range held {
			d := <-deliveries
			if _, asks := d.Headers[protocol.HeaderOutcome]; !asks {
				t.Errorf("message %s does not request a report", d.MessageId)
			}
			theirs, last = append(theirs, d.MessageId), d.DeliveryTag
		}
		var mu sync.Mutex
		var ours []string
		w, err := reprise.NewWorker(p.Client, reprise.WorkerConfig{
			Queue: p.work,
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				ours = append(ours, m.MessageID)
				return nil
			}),
		})
		archivetest.Must(t, err)
		p.Runs(w.Run)
		known := func() error {
			r, err := p.Archive.Replay(t.Context(), r.ID)
			if err == nil && (r.Succeeded != 20-held || r.Pending() != held || r.Back+r.Retrying+r.Unknown != 0) {
				err = fmt.Errorf("got replay %+v, want %d succeeded, %d pending", r, 20-held, held)
			}
			return err
		}
		testkit.Eventually(t, archivetest.Longest, known)
		archivetest.Must(t, old.Cancel("old", false))
		archivetest.Must(t, old.Ack(last, true))
		archivetest.Must(t, old.Close()) // the broker has received the acknowledgements
		if err := known(); err != nil {
			t.Error(err)
		}
		for outcome, want := range map[failed.Outcome][]string{failed.OutcomeSucceeded: ours, failed.OutcomePending: theirs} {
			list, _, err := p.Archive.List(t.Context(), failed.Filter{SentBy: r.ID, Outcome: outcome}, store.Page{})
			archivetest.Must(t, err)
			var got []string
			for _, s := range list {
				got = append(got, s.MessageID)
			}
			slices.Sort(got)
			if slices.Sort(want); !slices.Equal(got, want) {
				t.Errorf("%s: got messages %q, want %q", outcome, got, want)
			}
		}
	})
}
