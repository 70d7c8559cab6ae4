package workertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A worker reports the outcome only of messages that request a report. A request in a copied or forged header does not
// count, because handlers copy headers and publishers can forge them.
func TestWorkerReportsRequestedOutcomes(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		c := dial()
		to, other := protocol.OutcomeQueuePrefix+"archive", "elsewhere"
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: to}, {Name: other}}}); err != nil {
			t.Fatal(err)
		}
		fails := map[string]bool{"retried": true}
		h := newScript(func(m *reprise.Delivery) error {
			if fails[m.MessageID] && m.Attempt == 1 {
				return errors.New("not yet")
			}
			return nil
		})
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h})
		request := protocol.OutcomeRequest{To: to, Replay: "7/1", Key: "key", Queue: "work"}
		send := func(id string, change func(*protocol.OutcomeRequest)) {
			asks := request
			asks.MessageID = id
			change(&asks)
			r.publish("", "work", amqp.Publishing{MessageId: id, Headers: amqp.Table{protocol.HeaderOutcome: amqp.Table(asks.Table())}})
		}
		send("good", func(*protocol.OutcomeRequest) {})
		send("no queue", func(o *protocol.OutcomeRequest) { o.Queue = "" })
		send("retried", func(*protocol.OutcomeRequest) {})
		send("copied by a handler", func(o *protocol.OutcomeRequest) { o.MessageID = "the message before" })
		send("another queue", func(o *protocol.OutcomeRequest) { o.Queue = "orders" })
		send("report to another queue", func(o *protocol.OutcomeRequest) { o.To = other })
		r.publish("", "work", amqp.Publishing{MessageId: "text", Headers: amqp.Table{protocol.HeaderOutcome: "yes"}})
		h.wait(t, 8)
		time.Sleep(time.Minute)
		got := map[string]int{}
		for {
			d, ok, err := r.Get(to, true)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			o, read := protocol.ReadOutcome(topology.Table(d.Headers))
			if !read || o.Key != "key" || o.Queue != "work" || o.Replay != "7/1" || d.DeliveryMode != amqp.Persistent || len(d.Body) != 0 {
				t.Errorf("report: got headers %+v, outcome %+v; want the outcome of key in replay 7/1, persistent and without a body", d.Headers, o)
			}
			got[o.Result+" "+o.Error]++
		}
		if len(got) != 2 || got["succeeded "] != 2 || got["retrying not yet"] != 1 {
			t.Errorf("reports: got %v, want two successes and one retry", got)
		}
		if n := r.depth(other); n != 0 {
			t.Errorf("reports to the queue in a forged header: got %d, want 0", n)
		}
	})
}

// If the broker does not confirm a report, the report delays the acknowledgement only for a limited time.
func TestUnconfirmedReportDelaysAckBriefly(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		events := &events{}
		m := newConfirmGate()
		c := dial(m.intercept, func(c *reprise.Config) { c.Observer = events })
		to := protocol.OutcomeQueuePrefix + "archive"
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: to}}}); err != nil {
			t.Fatal(err)
		}
		h := newScript(func(*reprise.Delivery) error { return nil })
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h})
		m.mute(to)
		for to, id := range map[string]string{to: "not confirmed", protocol.OutcomeQueuePrefix + "gone": "no such queue"} {
			asks := protocol.OutcomeRequest{To: to, Replay: "7/1", Key: "key", Queue: "work", MessageID: id}
			r.publish("", "work", amqp.Publishing{MessageId: id, Headers: amqp.Table{protocol.HeaderOutcome: amqp.Table(asks.Table())}})
		}
		h.wait(t, 2)
		time.Sleep(time.Minute)
		if n := len(events.of(reprise.EventUnreported)); n != 2 {
			t.Errorf("got %d unreported outcomes, want 2", n)
		}
		if n := len(events.of(reprise.EventDone)); n != 2 || h.count() != 2 {
			t.Errorf("%d messages were processed after %d attempts, want 2", n, h.count())
		}
	})
}

// requestReport returns a message that requests a report.
func requestReport(to, id string) amqp.Publishing {
	request := protocol.OutcomeRequest{To: to, Replay: "7/1", Key: "key", Queue: "work", MessageID: id}
	return amqp.Publishing{MessageId: id, Headers: amqp.Table{protocol.HeaderOutcome: amqp.Table(request.Table())}}
}

// outcomes declares a queue for reports and returns its name.
func outcomes(t *testing.T, c client) string {
	t.Helper()
	to := protocol.OutcomeQueuePrefix + "archive"
	if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: to}}}); err != nil {
		t.Fatal(err)
	}
	return to
}

// A report does not prevent the acknowledgement of a message, not even at the end of a drain or shortly before the
// acknowledgement timeout.
func TestReportDoesNotPreventAck(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		takes  time.Duration
		worker reprise.WorkerConfig
		drains bool
	}{
		"after the drain timeout":             {4 * time.Second, reprise.WorkerConfig{DrainTimeout: time.Second}, true},
		"when the drain timeout ends":         {4 * time.Second, reprise.WorkerConfig{DrainTimeout: 6 * time.Second}, true},
		"near the acknowledgement timeout":    {50 * time.Second, reprise.WorkerConfig{ConsumerTimeout: time.Minute}, false},
		"when the worker requeues deliveries": {46 * time.Second, reprise.WorkerConfig{ConsumerTimeout: time.Minute}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				events := &events{}
				m := newConfirmGate()
				done := make(chan time.Time, 1)
				c := dial(m.intercept, func(c *reprise.Config) {
					c.Observer = reprise.ObserverFunc(func(e reprise.Event) {
						if events.Observe(e); e.Kind == reprise.EventDone {
							done <- time.Now()
						}
					})
				})
				to := outcomes(t, c)
				m.mute(to)
				began := make(chan struct{})
				var ended time.Time
				tc.worker.Queue, tc.worker.Handler = "work", newScript(func(*reprise.Delivery) error {
					close(began)
					time.Sleep(tc.takes)
					ended = time.Now()
					return nil
				})
				stop := start(t, c, tc.worker)
				r.publish("", "work", requestReport(to, "1"))
				<-began
				if tc.drains {
					if err := stop(); err != nil {
						t.Error(err)
					}
				}
				time.Sleep(2 * time.Minute)
				select {
				case at := <-done:
					if late := at.Sub(ended); late > 3*time.Second {
						t.Errorf("time between the end of the handler and the ack: got %s, want at most 3s", late)
					}
				default:
					t.Error("message was not acknowledged")
				}
				if n := r.depth("work"); n != 0 {
					t.Errorf("queue has %d messages, want 0", n)
				}
				if n := len(events.of(reprise.EventUnreported)); n != 1 {
					t.Errorf("got %d unreported outcomes, want 1", n)
				}
			})
		})
	}
}

// If a report queue does not confirm, the worker stops sending reports to this queue. Other messages are delayed by at most
// one timeout. After a minute, the worker sends one report to test the queue.
func TestWorkerPausesUnconfirmedReports(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		events := &events{}
		m := newConfirmGate()
		c := dial(m.intercept, func(c *reprise.Config) { c.Observer = events })
		to := outcomes(t, c)
		m.mute(to)
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: "work"}}}); err != nil {
			t.Fatal(err)
		}
		const replayed = 160
		for i := range replayed {
			r.publish("", "work", requestReport(to, fmt.Sprint(i)))
		}
		r.publish("", "work", amqp.Publishing{MessageId: "live"})
		live := make(chan time.Time, 1)
		h := newScript(func(m *reprise.Delivery) error {
			if m.MessageID == "live" {
				live <- time.Now()
			}
			return nil
		})
		began := time.Now()
		start(t, c, reprise.WorkerConfig{Queue: "work", Handler: h})
		h.wait(t, replayed+1)
		time.Sleep(30 * time.Second)
		if took := (<-live).Sub(began); took > 6*time.Second {
			t.Errorf("delay of the message behind %d replayed messages: got %s, want at most 6s", replayed, took)
		}
		unreported := func(want int) {
			t.Helper()
			if n := len(events.of(reprise.EventUnreported)); n != want {
				t.Errorf("got %d unreported outcomes, want %d", n, want)
			}
		}
		unreported(replayed)
		time.Sleep(time.Minute)
		before := r.depth(to)
		for i := range 3 {
			r.publish("", "work", requestReport(to, fmt.Sprint("later", i)))
		}
		time.Sleep(30 * time.Second)
		unreported(replayed + 3)
		if n := r.depth(to) - before; n != 1 {
			t.Errorf("got %d reports that test the queue, want 1", n)
		}
		m.release(t)
		time.Sleep(time.Minute)
		for i := range 3 {
			r.publish("", "work", requestReport(to, fmt.Sprint("last", i)))
			time.Sleep(time.Second)
		}
		unreported(replayed + 3)
	})
}

// While the connection is blocked, a worker acknowledges replayed messages without a report.
func TestWorkerSendsNoReportsWhileConnectionIsBlocked(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		events := &events{}
		c, publishing := dialAlarmed(t, b, func(c *reprise.Config) { c.Observer = events })
		queue := queueFor(t, r, c, nil)
		to := protocol.OutcomeQueuePrefix + testkit.Name(t, "archive")
		r.deleteQueues(to)
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: to}}}); err != nil {
			t.Fatal(err)
		}
		publishing.inject(t, lowOnMemory)
		c.log.wait(t, "publishing blocked", 1)
		h := newScript(func(*reprise.Delivery) error { return nil })
		start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h})
		r.deleteQueues(topology.FailedQueue(queue))
		request := protocol.OutcomeRequest{To: to, Replay: "7/1", Key: "key", Queue: queue, MessageID: "1"}
		r.publish("", queue, amqp.Publishing{MessageId: "1", Headers: amqp.Table{protocol.HeaderOutcome: amqp.Table(request.Table())}})
		testkit.Eventually(t, timeout, func() bool { return len(events.of(reprise.EventDone)) == 1 })
		publishing.inject(t, "")
		c.log.wait(t, "publishing unblocked", 1)
		missing := events.of(reprise.EventUnreported)
		if len(missing) != 1 || !errors.Is(missing[0].Err, reprise.ErrBlocked) || r.depth(to) != 0 {
			t.Errorf("got events %v and %d reports, want 1 event with ErrBlocked and 0 reports", missing, r.depth(to))
		}
	})
}

// A worker reports a failed attempt before the next attempt. It reports not only the first attempt, because a lost
// connection or another program may have prevented that report.
func TestWorkerReportsFailedAttempts(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		c := dial()
		to := outcomes(t, c)
		h := newScript(func(m *reprise.Delivery) error {
			if m.Attempt == 4 {
				return nil
			}
			return fmt.Errorf("attempt %d fails", m.Attempt)
		})
		cfg := reprise.WorkerConfig{Queue: "work", Handler: h, Strategy: topology.Strategy{Route: topology.Requeuing{}}}
		if err := start(t, c, cfg)(); err != nil { // declares the queue
			t.Fatal(err)
		}
		r.publish("", "work", requestReport(to, "1"))
		r.crash("work", 1)
		start(t, c, cfg)
		h.wait(t, 3)
		time.Sleep(time.Minute)
		var got []string
		for range r.depth(to) {
			o, _ := protocol.ReadOutcome(topology.Table(r.take(to).Headers))
			got = append(got, fmt.Sprint(o.Attempt, " ", o.Result, " ", o.Error))
		}
		want := []string{"2 retrying attempt 2 fails", "3 retrying attempt 3 fails", "4 succeeded "}
		if !slices.Equal(got, want) {
			t.Errorf("reports: got %q, want %q", got, want)
		}
	})
}

// The worker handles the newest message of a burst, and reports the result for each message of the burst.
func TestWorkerReportsEachMessageOfBurst(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		c := dial()
		to := outcomes(t, c)
		h := newScript(func(m *reprise.Delivery) error {
			if m.MessageID == "newest" && m.Attempt == 1 {
				return errors.New("not yet")
			}
			return nil
		})
		start(t, c, reprise.WorkerConfig{
			Queue: "work", Handler: h, Policy: quick(3),
			Debounce: &reprise.Debounce{Window: 10 * time.Second, Key: func(*reprise.Delivery) string { return "same" }},
		})
		for i := range 3 {
			r.publish("", "work", requestReport(to, fmt.Sprint(i)))
		}
		r.publish("", "work", amqp.Publishing{MessageId: "live"})
		r.publish("", "work", requestReport(to, "newest"))
		time.Sleep(time.Minute)
		got := map[string]int{}
		for range r.depth(to) {
			o, _ := protocol.ReadOutcome(topology.Table(r.take(to).Headers))
			got[o.Result]++
		}
		if h.count() != 2 || len(got) != 2 || got[protocol.OutcomeRetrying] != 4 || got[protocol.OutcomeSucceeded] != 1 {
			t.Errorf("got %d attempts, reports %v; want 2 attempts, four reports of a retry and one of a success", h.count(), got)
		}
		for i := range 3 {
			r.publish("", "work", requestReport(to, fmt.Sprint("again", i)))
		}
		time.Sleep(time.Minute)
		if n := r.depth(to); n != 3 {
			t.Errorf("reports of 3 successes: got %d, want 3", n)
		}
	})
}

// A replay sends a message to the partition or the lane in which it failed, and requests a report from there.
func TestPartitionsAndLanesReportOutcomes(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		c, r := dial(t, b.URL), newRaw(t, b.URL)
		to := protocol.OutcomeQueuePrefix + testkit.Name(t, "archive")
		r.deleteQueues(to)
		if err := c.Declare(t.Context(), topology.Topology{Queues: []topology.Queue{{Name: to}}}); err != nil {
			t.Fatal(err)
		}
		reports := func(config reprise.WorkerConfig, part string) {
			t.Helper()
			config.Policy.Backoff = backoff.Fixed(50 * time.Millisecond)
			config.Handler = reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				if m.Attempt == 1 {
					return errors.New("not yet")
				}
				return nil
			})
			start(t, c, config)
			asks := protocol.OutcomeRequest{To: to, Replay: "7/1", Key: "key", Queue: part, MessageID: "1"}
			m := &reprise.Message{RoutingKey: part, MessageID: "1", Headers: map[string]any{protocol.HeaderOutcome: asks.Table()}}
			testkit.Eventually(t, timeout, func() error { return c.Publish(t.Context(), m) })
			testkit.Eventually(t, timeout, func() bool { return r.depth(to) == 2 })
			for _, want := range []string{protocol.OutcomeRetrying, protocol.OutcomeSucceeded} {
				d, _, err := r.Get(to, true)
				o, _ := protocol.ReadOutcome(topology.Table(d.Headers))
				if err != nil || o.Result != want || o.Queue != part {
					t.Errorf("report: got %+v (%v), want %s in %s", o, err, want, part)
				}
			}
		}
		l := newLaned(t, b, 2)
		reports(l.config(nil), l.all()[1])
		if b.IsRabbitMQ && b.Version < "4" {
			return // OrderBy requires RabbitMQ 4.0
		}
		queue := testkit.Name(t, "keyed")
		cleanKeyed(t, b.URL, queue, 2)
		reports(reprise.WorkerConfig{Queue: queue, OrderBy: &reprise.Keyed{Partitions: 2}}, queue+".part.1-of-2")
	})
}
