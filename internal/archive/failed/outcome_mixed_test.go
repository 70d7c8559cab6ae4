package failed

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
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
		must(t, err)
		defer conn.Close()
		old, err := conn.Channel()
		must(t, err)
		const held = 8
		must(t, old.Qos(held, 0, false))
		deliveries, err := old.Consume(p.work, "old", false, false, false, false, nil)
		must(t, err)
		r, err := p.archive.BeginReplay(t.Context(), Plan{Filter: Filter{All: true}}, "me")
		must(t, err)
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
		w, err := reprise.NewWorker(p.client, reprise.WorkerConfig{
			Queue: p.work,
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				ours = append(ours, m.MessageID)
				return nil
			}),
		})
		must(t, err)
		p.runs(w.Run)
		known := func() error {
			r, err := p.archive.Replay(t.Context(), r.ID)
			if err == nil && (r.Succeeded != 20-held || r.Pending() != held || r.Back+r.Retrying+r.Unknown != 0) {
				err = fmt.Errorf("got replay %+v, want %d succeeded, %d pending", r, 20-held, held)
			}
			return err
		}
		testkit.Eventually(t, longest, known)
		must(t, old.Cancel("old", false))
		must(t, old.Ack(last, true))
		must(t, old.Close()) // the broker has received the acknowledgements
		if err := known(); err != nil {
			t.Error(err)
		}
		for outcome, want := range map[Outcome][]string{OutcomeSucceeded: ours, OutcomePending: theirs} {
			list, _, err := p.archive.List(t.Context(), Filter{SentBy: r.ID, Outcome: outcome}, Page{})
			must(t, err)
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
