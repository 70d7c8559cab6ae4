package workertest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// Instead of running workers, the tests in this file execute the hops themselves, so that they test only the routes and the
// broker.

// No route delivers a retry early. The lateness depends on the machine, so the test only logs it.
func TestRoutesDoNotDeliverEarly(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for name, route := range map[string]topology.Route{
			"buckets": topology.Buckets{Base: 100 * time.Millisecond}, "narrow buckets": topology.Buckets{Base: 100 * time.Millisecond, Growth: 1.1},
			"message TTL": topology.MessageTTL{}, "levels": topology.Levels{},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r, random := newRaw(t, b.URL), rand.New(rand.NewPCG(5, 6))
				work := testkit.Name(t, "work")
				at := topology.Delivery{Queue: work}
				hops, topo := make([]topology.Hop, 200), route.Topology(work)
				for i := range hops {
					hop, err := route.Wait(at, time.Duration(random.Int64N(int64(2*time.Second))))
					if err != nil {
						t.Fatal(err)
					}
					hops[i], topo = hop, topo.Merge(hop.Topology)
				}
				r.declare(dial(t, b.URL), topo)
				collected := r.collect(work, len(hops))
				s, sent := newSender(r), make([]time.Time, len(hops))
				for i, hop := range hops {
					sent[i] = time.Now()
					s.send(hop, amqp.Publishing{MessageId: fmt.Sprint(i)})
				}
				s.wait()
				var late []time.Duration
				for _, d := range collected(timeout) {
					var i int
					if _, err := fmt.Sscan(d.MessageId, &i); err != nil {
						t.Fatal(err)
					}
					took := d.at.Sub(sent[i])
					if took < hops[i].Delay {
						t.Errorf("delay: got %s, want at least %s", took, hops[i].Delay)
					}
					late = append(late, took-hops[i].Delay)
				}
				t.Log(quantiles(late))
			})
		}
	})
}

// A scheduled message arrives with the exchange, routing key, properties and headers with which it was published.
func TestScheduledMessagesArriveAsPublished(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r, c := newRaw(t, b.URL), dial(t, b.URL)
		exchange, queue, carbon := testkit.Name(t, "calendar"), testkit.Name(t, "due"), testkit.Name(t, "carbon")
		r.declare(c, topology.Topology{
			Exchanges: []topology.Exchange{{Name: exchange, Kind: topology.Topic}},
			Queues:    []topology.Queue{{Name: queue}, {Name: carbon}},
			Bindings: []topology.Binding{
				{Exchange: exchange, Queue: queue, RoutingKey: "eu.#"}, {Exchange: exchange, Queue: carbon, RoutingKey: "carbon"},
			},
		})
		collected := r.collect(queue, 4)
		s, sent, hops := newSender(r), map[string]time.Time{}, map[string]topology.Hop{}
		for i, delay := range []time.Duration{0, 1, 2 * time.Second, 2500 * time.Millisecond} {
			id := fmt.Sprint(i)
			hop, err := topology.Levels{}.Schedule(exchange, "eu."+id, delay)
			if err != nil {
				t.Fatal(err)
			}
			r.declare(c, hop.Topology)
			hops[id], sent[id] = hop, time.Now()
			s.send(hop, amqp.Publishing{
				MessageId: id, CorrelationId: "c", Priority: 3, Body: []byte("body"), Headers: amqp.Table{"own": "kept", "CC": []any{"carbon"}},
			})
		}
		s.wait()
		for _, d := range collected(timeout) {
			hop := hops[d.MessageId]
			if took := d.at.Sub(sent[d.MessageId]); took < hop.Delay {
				t.Errorf("delay: got %s, want at least %s", took, hop.Delay)
			}
			if d.Exchange != exchange || d.RoutingKey != "eu."+d.MessageId {
				t.Errorf("delay %s: got exchange %q, routing key %q; want %q, %q", hop.Delay, d.Exchange, d.RoutingKey, exchange, "eu."+d.MessageId)
			}
			deaths, _ := d.Headers["x-death"].([]any)
			if len(deaths) != hop.Stations {
				t.Errorf("delay %s: got dead letters of %d queues, want %d", hop.Delay, len(deaths), hop.Stations)
			}
			if d.CorrelationId != "c" || d.Priority != 3 || string(d.Body) != "body" || d.Headers["own"] != "kept" {
				t.Errorf("delay %s: got %+v, want the published properties, headers and body", hop.Delay, d)
			}
			r.take(carbon)
		}
	})
}

// With routes that do not publish copies, the broker counts the attempts of requeued or dead-lettered messages.
func TestBrokerCountsAttempts(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for name, route := range map[string]topology.Route{
			"requeuing":     topology.Requeuing{},
			"deadlettering": topology.DeadLettering{Delay: 50 * time.Millisecond},
			"delayed retry": topology.DelayedRetry{Min: 50 * time.Millisecond, Max: 120 * time.Millisecond},
		} {
			t.Run(name, func(t *testing.T) {
				r, c := newRaw(t, b.URL), dial(t, b.URL)
				marks := (topology.Strategy{Route: route}).WithDefaults().Marks
				work := testkit.Name(t, "work")
				topo := route.Topology(work)
				if version, _ := r.conn.Properties["version"].(string); topo.For(version) != nil {
					if err := c.Declare(t.Context(), topo); err == nil || !strings.Contains(err.Error(), "must be RabbitMQ 4.3.3 or later") {
						t.Errorf("RabbitMQ %s: got %v, want must be RabbitMQ 4.3.3 or later", version, err)
					}
					return
				}
				r.declare(c, topo)
				exchange := testkit.Name(t, "shop")
				r.declare(c, topology.Topology{
					Exchanges: []topology.Exchange{{Name: exchange, Kind: topology.Topic}},
					Bindings:  []topology.Binding{{Exchange: exchange, Queue: work, RoutingKey: "order.*"}},
				})
				r.publish(exchange, "order.new", amqp.Publishing{MessageId: "id"})
				failedAt, delay := time.Time{}, time.Duration(0)
				for attempt := 1; attempt <= 5; attempt++ {
					raw := r.get(work)
					if early := delay - time.Since(failedAt); !failedAt.IsZero() && early > 0 {
						t.Errorf("attempt %d must not begin early: got %s early", attempt, early)
					}
					d := delivered(work, raw)
					if n := marks.Read(d).Attempts; n != attempt-1 {
						t.Errorf("attempt %d: got %d previous attempts, want %d, from headers %v", attempt, n, attempt-1, raw.Headers)
					}
					if n := crashCount(marks, d); n != 0 {
						t.Errorf("attempt %d: got %d crashes, want 0, from headers %v", attempt, n, raw.Headers)
					}
					if x, key := marks.Read(d).OriginAt(d); x != exchange || key != "order.new" {
						t.Errorf("attempt %d: got exchange %q, routing key %q; want %q, order.new", attempt, x, key, exchange)
					}
					hop, err := route.Wait(d, time.Hour)
					if err != nil {
						t.Fatal(err)
					}
					failedAt, delay = time.Now(), hop.Delay
					if err := raw.Reject(hop.Way == topology.Requeue); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	})
}

// If x-death counts the attempts, a connection that is lost during a delivery counts as a crash. (Before RabbitMQ 4.3, each
// queue restarts the count of crashes.)
func TestCrashesDoNotCountAsAttempts(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r, c := newRaw(t, b.URL), dial(t, b.URL)
		work := testkit.Name(t, "work")
		r.declare(c, topology.DeadLettering{Delay: 50 * time.Millisecond}.Topology(work))
		r.publish("", work, amqp.Publishing{})
		const crash, reject = "crash", "reject"
		for i, step := range []struct {
			attempts, crashes int // counts that this delivery contains
			end               string
		}{{0, 0, crash}, {0, 1, crash}, {0, 2, reject}, {1, 2, reject}, {2, 2, crash}, {2, 3, crash}, {2, 4, reject}} {
			raw := r.get(work)
			d := delivered(work, raw)
			if n := (topology.Deaths{}).Read(d).Attempts; n != step.attempts {
				t.Errorf("delivery %d: got %d attempts, want %d: %v", i+1, n, step.attempts, d.Headers)
			}
			n := crashCount(topology.Deaths{}, d)
			if forgets := b.Version == "3.10" && step.attempts > 0; n != step.crashes && !forgets || n > step.crashes {
				t.Errorf("delivery %d: got %d crashes, want %d: %v", i+1, n, step.crashes, d.Headers)
			}
			if step.end == reject {
				if err := raw.Reject(false); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			r.reopen()
		}
	})
}

// A classic queue does not count deliveries, so a worker would requeue a failing message indefinitely.
func TestRequeuingRejectsClassicQueues(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		work := testkit.Name(t, "work")
		r.declare(dial(t, b.URL), topology.Topology{Queues: []topology.Queue{{Name: work, Args: topology.Table{"x-queue-type": "classic"}}}})
		r.publish("", work, amqp.Publishing{})
		var refused []bool
		for range 2 {
			raw := r.get(work)
			_, err := topology.Requeuing{}.Wait(delivered(work, raw), 0)
			refused = append(refused, err != nil)
			if err := raw.Reject(true); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([]bool{false, true}, refused); diff != "" {
			t.Errorf("refused declarations: -want +got:\n%s", diff)
		}
	})
}

// sender publishes messages on one channel, without waiting for the confirm of each message.
type sender struct {
	t        testing.TB
	ch       *amqp.Channel
	confirms []*amqp.DeferredConfirmation
}

func newSender(r *raw) *sender {
	r.t.Helper()
	ch, err := r.conn.Channel()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		r.t.Fatal(err)
	}
	return &sender{t: r.t, ch: ch}
}

// send publishes msg as the copy for a hop.
func (s *sender) send(hop topology.Hop, msg amqp.Publishing) {
	s.t.Helper()
	msg.DeliveryMode = amqp.Persistent
	if hop.TTL > 0 {
		msg.Expiration = fmt.Sprint(hop.TTL.Milliseconds())
	}
	headers := amqp.Table{}
	maps.Copy(headers, msg.Headers)
	maps.Copy(headers, amqp.Table(hop.Headers))
	msg.Headers = headers
	confirm, err := s.ch.PublishWithDeferredConfirm(hop.Exchange, hop.RoutingKey, true, false, msg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.confirms = append(s.confirms, confirm)
}

// wait returns when all messages are confirmed.
func (s *sender) wait() {
	s.t.Helper()
	for _, c := range s.confirms {
		if !c.Wait() {
			s.t.Fatal("message was not confirmed")
		}
	}
	s.confirms = nil
}

// declare declares a topology and deletes it at the end of the test.
func (r *raw) declare(c client, topo topology.Topology) {
	r.t.Helper()
	for _, q := range topo.Queues {
		r.deleteQueues(q.Name)
	}
	for _, e := range topo.Exchanges {
		r.deleteExchanges(e.Name)
	}
	if err := c.Declare(r.t.Context(), topo); err != nil {
		r.t.Fatal(err)
	}
}

// get waits for a message and leaves it unsettled.
func (r *raw) get(queue string) (d amqp.Delivery) {
	r.t.Helper()
	testkit.Eventually(r.t, timeout, func() error {
		var ok bool
		var err error
		if d, ok, err = r.Get(queue, false); err != nil || !ok {
			return fmt.Errorf("queue %s has no message: %v", queue, err)
		}
		return nil
	})
	return d
}

// arrival is a delivery with its arrival time.
type arrival struct {
	amqp.Delivery
	at time.Time
}

// collect starts consuming n messages in automatic acknowledgement mode. The returned function waits for the messages.
func (r *raw) collect(queue string, n int) func(within time.Duration) []arrival {
	r.t.Helper()
	deliveries, err := r.Consume(queue, "", true, false, false, false, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	var all []arrival
	done := make(chan struct{})
	go func() { // returns when the connection is closed, at the latest
		defer close(done)
		for len(all) < n {
			d, ok := <-deliveries
			if !ok {
				return
			}
			all = append(all, arrival{d, time.Now()})
		}
	}()
	return func(within time.Duration) []arrival {
		r.t.Helper()
		select {
		case <-done:
		case <-time.After(within):
			r.t.Fatalf("timed out after %s: got fewer than %d messages", within, n)
		}
		if len(all) != n {
			r.t.Fatalf("got %d messages, want %d", len(all), n)
		}
		return all
	}
}

// delivered converts a delivery to the form that package reprise passes to routes and marks.
func delivered(queue string, d amqp.Delivery) topology.Delivery {
	return topology.Delivery{
		Queue: queue, Exchange: d.Exchange, RoutingKey: d.RoutingKey, Redelivered: d.Redelivered, Headers: tables(d.Headers).(topology.Table),
	}
}

// tables converts the tables of the AMQP client to the tables of package topology.
func tables(v any) any {
	switch x := v.(type) {
	case amqp.Table:
		t := topology.Table{}
		for k, v := range x {
			t[k] = tables(v)
		}
		return t
	case []any:
		x = slices.Clone(x)
		for i := range x {
			x[i] = tables(x[i])
		}
		return x
	}
	return v
}
