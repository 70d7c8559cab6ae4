package presettest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A worker of each design reports the outcome of a replayed message that it has retried. If another program of the
// design has retried the message, the worker reports the outcome only if that program or the broker has kept all
// headers. Otherwise the outcome remains unknown.
func TestWorkersReportOutcomesOfDesigns(t *testing.T) {
	const retrying, succeeded = protocol.OutcomeRetrying, protocol.OutcomeSucceeded
	dropsHeaders := map[string]bool{"coverart": true, "staking": true}
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for name, of := range foreignDesigns {
			t.Run(name, func(t *testing.T) {
				if name != "coverart" { // its queue names are fixed
					t.Parallel()
				}
				f, failedQueue, strategy := of(t, b)
				s := newSharedSystem(t, b, f, failedQueue, strategy)
				if name == "staking" { // the published client drops all other headers
					f.fail = func(ch *amqp.Channel, d amqp.Delivery) error {
						return testkit.Republish(ch, "", f.queue+"_delay", d, func(p *amqp.Publishing) {
							p.Headers = amqp.Table{"x-processing-attempts": int32(1)}
							p.Expiration = strconv.FormatInt(foreignDelay.Milliseconds(), 10)
						})
					}
				}
				to := protocol.OutcomeQueuePrefix + testkit.Name(t, "archive")
				ok(t, declareQueue(s.ch, to, nil))
				t.Cleanup(func() { _, _ = s.ch.QueueDelete(to, false, false, false) })

				s.publishRequest(t, to, "worker")
				if got, want := s.reports(t, to, true), []string{retrying, succeeded}; !slices.Equal(got, want) {
					t.Errorf("retry by a worker: got reports %q, want %q", got, want)
				}

				s.publishRequest(t, to, "other")
				testkit.Eventually(t, coverArtTimeout, func() bool {
					d, found, err := s.ch.Get(f.queue, false)
					ok(t, err)
					if found {
						ok(t, f.fail(s.ch, d))
					}
					return found
				})
				want := []string{succeeded}
				if dropsHeaders[name] {
					want = nil
				}
				if got := s.reports(t, to, false); !slices.Equal(got, want) {
					t.Errorf("retry by a program of the design: got reports %q, want %q", got, want)
				}
			})
		}
	})
}

// publishRequest publishes a message that requests a report.
func (s *sharedSystem) publishRequest(t *testing.T, to, id string) {
	t.Helper()
	request := protocol.OutcomeRequest{To: to, Replay: "7/1", Key: "key", Queue: s.queue, MessageID: id}
	ok(t, s.ch.PublishWithContext(t.Context(), s.exchange, s.key, true, false, amqp.Publishing{
		MessageId: id, DeliveryMode: amqp.Persistent, Headers: amqp.Table{protocol.HeaderOutcome: amqp.Table(request.Table())},
	}))
}

// reports runs a worker until it has handled one message, whose first attempt fails if fails is set, and returns the
// reported results.
func (s *sharedSystem) reports(t *testing.T, to string, fails bool) (results []string) {
	t.Helper()
	var failing atomic.Bool
	failing.Store(fails)
	done := make(chan struct{})
	acked := sync.OnceFunc(func() { close(done) })
	w, err := reprise.NewWorker(s.client, reprise.WorkerConfig{
		Queue: s.queue, Strategy: s.strategy,
		Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
			if failing.Swap(false) {
				return errors.New("not yet")
			}
			return nil
		}),
		Acked: func(*reprise.Delivery, error) { acked() },
	})
	ok(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	<-done
	stop()
	ok(t, <-ended)
	for range s.depth(t, to) {
		d, _, err := s.ch.Get(to, true)
		ok(t, err)
		o, _ := protocol.ReadOutcome(topology.Table(d.Headers))
		results = append(results, o.Result)
	}
	return results
}
