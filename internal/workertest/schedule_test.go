package workertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// calendar declares an exchange, and a queue that receives all messages of this exchange. At the end of the test, it also
// deletes the wait queues for delays up to longest.
func calendar(t *testing.T, r *raw, c client, longest time.Duration) (exchange, queue string) {
	t.Helper()
	exchange, queue = testkit.Name(t, "calendar"), testkit.Name(t, "due")
	r.deleteExchanges(exchange)
	r.deleteQueues(queue)
	if err := c.Declare(t.Context(), topology.Topology{
		Exchanges: []topology.Exchange{{Name: exchange, Kind: topology.Topic}},
		Queues:    []topology.Queue{{Name: queue}},
		Bindings:  []topology.Binding{{Exchange: exchange, Queue: queue, RoutingKey: "#"}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, to := range [][2]string{{exchange, ""}, {"", queue}} {
		hop, err := topology.Levels{}.Schedule(to[0], to[1], longest)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range hop.Topology.Exchanges {
			r.deleteExchanges(x.Name)
		}
		for _, q := range hop.Topology.Queues {
			r.deleteQueues(q.Name)
		}
	}
	return exchange, queue
}

// A scheduled message, for a queue or an exchange, is never early, and less than a second late.
func TestPublishAtIsAccurateToOneSecond(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		c := dial(func(c *reprise.Config) { c.Heartbeat = 12 * time.Hour })
		const longest = 72 * time.Hour
		exchange, queue := calendar(t, r, c, longest)
		due := map[string]time.Time{}
		for i, d := range []time.Duration{1, time.Second, 1500 * time.Millisecond, 59 * time.Second, time.Hour, 26*time.Hour + 1, longest} {
			time.Sleep(12345 * time.Microsecond)
			for _, to := range [][2]string{{exchange, "eu.reminder"}, {"", queue}} {
				m := &reprise.Message{Exchange: to[0], RoutingKey: to[1], CorrelationID: fmt.Sprint(i), Headers: map[string]any{"own": "kept"}}
				at := time.Now().Add(d)
				if err := c.PublishAt(t.Context(), at, m); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(map[string]any{"own": "kept"}, m.Headers); diff != "" || m.Exchange != to[0] {
					t.Errorf("message after Publish: got exchange %q, want %q; headers: -want +got:\n%s", m.Exchange, to[0], diff)
				}
				due[m.MessageID] = at
			}
		}
		seen := make(chan *reprise.Delivery, len(due))
		h := reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if late := time.Since(due[m.MessageID]); late < 0 || late > time.Second {
				t.Errorf("delay of message %s: got %v late, want 0 to 1s", m.CorrelationID, late)
			}
			seen <- m
			return nil
		})
		start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h})
		for range due {
			m := <-seen
			if diff := cmp.Diff(map[string]any{"own": "kept"}, m.Headers); diff != "" {
				t.Errorf("headers of message %s: -want +got:\n%s", m.CorrelationID, diff)
			}
			if m.Exchange == "" && m.RoutingKey != queue || m.Exchange == exchange && m.RoutingKey != "eu.reminder" {
				t.Errorf("message %s: got exchange %q, routing key %q; want the published exchange and key", m.CorrelationID, m.Exchange, m.RoutingKey)
			}
		}
	})
}

func TestPublishInOnEachBroker(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)
		exchange, queue := calendar(t, r, c, 2*time.Second)
		var all sync.WaitGroup
		due := map[string]time.Time{}
		var mu sync.Mutex
		for i := range 8 { // concurrent calls; one call declares the queues
			all.Go(func() {
				m := &reprise.Message{RoutingKey: queue, Body: []byte("body"), Priority: 3}
				if i%2 == 0 {
					m.Exchange, m.RoutingKey = exchange, "k"
				}
				d := time.Duration(i) * 150 * time.Millisecond
				at := time.Now().Add(d)
				if err := c.PublishIn(t.Context(), d, m); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				due[m.MessageID] = at
			})
		}
		all.Wait()
		for range 8 {
			d := r.take(queue)
			if early := time.Until(due[d.MessageId]); early > 0 {
				t.Errorf("message must not arrive early: got %v early", early)
			}
			if string(d.Body) != "body" || d.Priority != 3 || d.Expiration != "" || d.DeliveryMode != amqp.Persistent {
				t.Errorf("message: got %+v, want the published properties, persistent and without expiration", d)
			}
		}
	})
}

func TestPublishAtRejectsInvalidMessages(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)
		_, queue := calendar(t, r, c, time.Hour)
		soon := time.Now().Add(time.Hour)
		for name, tc := range map[string]struct {
			at   time.Time
			m    *reprise.Message
			want string
		}{
			"nil":            {soon, nil, "message must not be nil"},
			"past":           {time.Time{}, &reprise.Message{RoutingKey: queue, Expiration: time.Minute}, "Expiration of a scheduled message must be 0"},
			"expiration":     {soon, &reprise.Message{RoutingKey: queue, Expiration: time.Minute}, "Expiration of a scheduled message must be 0"},
			"CC":             {soon, &reprise.Message{RoutingKey: queue, Headers: map[string]any{"CC": []any{"k"}}}, "must not have the header CC"},
			"nine years":     {time.Now().AddDate(9, 0, 0), &reprise.Message{RoutingKey: queue}, "must be at most 74565h24m16s (8.5 years)"},
			"no destination": {soon, &reprise.Message{}, "must not both be empty"},
			"headers":        {soon, &reprise.Message{RoutingKey: queue, Headers: map[string]any{"x": complex(1, 1)}}, "cannot send"},
		} {
			if err := c.PublishAt(t.Context(), tc.at, tc.m); !errors.Is(err, reprise.ErrInvalidMessage) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want ErrInvalidMessage with %q", name, err, tc.want)
			}
		}
		for want, m := range map[string]*reprise.Message{
			`queue "no-such-queue" does not exist`:       {RoutingKey: "no-such-queue"},
			`exchange "no-such-exchange" does not exist`: {Exchange: "no-such-exchange", RoutingKey: "k"},
		} {
			err := c.PublishAt(t.Context(), soon, m)
			if e, ok := errors.AsType[*reprise.UnroutableError](err); !ok || e.Exchange != m.Exchange || e.RoutingKey != m.RoutingKey && e.Exchange == "" || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		}
		if err := c.PublishAt(t.Context(), time.Time{}, &reprise.Message{RoutingKey: queue, MessageID: "late"}); err != nil {
			t.Errorf("cannot publish with a time in the past: %v", err)
		}
		if d := r.take(queue); d.MessageId != "late" {
			t.Errorf("message with a time in the past: got ID %q, want late", d.MessageId)
		}
		if depth := r.depth(queue); depth != 0 {
			t.Errorf("queue has %d further messages, want 0", depth)
		}
	})
}

// A consumer that does not use Reprise may receive a message and schedule it again with all headers, including headers of
// RabbitMQ and headers of the last route.
func TestPublishInAcceptsHeadersOfDeliveredMessage(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		c := dial(t, b.URL)
		_, queue := calendar(t, r, c, 3*time.Second)
		m := &reprise.Message{RoutingKey: queue, Headers: map[string]any{"own": "kept"}}
		putOff := func(d time.Duration) (byLevel2 bool) {
			before := len(m.Headers)
			m.MessageID += "+"
			if err := c.PublishIn(t.Context(), d, m); err != nil {
				t.Fatal(err)
			}
			if len(m.Headers) != before {
				t.Error("PublishIn modified the headers of the message")
			}
			got := r.take(queue)
			if got.MessageId != m.MessageID || got.Headers["own"] != "kept" {
				t.Fatalf("message: got %+v, want ID %q and the header own", got, m.MessageID)
			}
			m.Headers = maps.Clone(map[string]any(got.Headers))
			_, byLevel2 = got.Headers[topology.HeaderLevel+"02"]
			return byLevel2
		}
		for tries := 1; !putOff(3 * time.Second); tries++ { // a publish that is a second late does not need level 2, one that is three seconds late no level
			if tries == 20 {
				t.Fatalf("message must pass the level of 2 s: got headers %v", m.Headers)
			}
		}
		if putOff(2 * time.Second) {
			t.Errorf("message must not pass a level of its previous delay: got headers %v", m.Headers)
		}
	})
}

// The client declares deleted wait queues and exchanges again. The observer receives only events of successful publishes.
func TestPublishInRecreatesDeletedQueues(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		seen := &events{}
		c := dial(t, b.URL, func(c *reprise.Config) { c.Observer = seen })
		_, queue := calendar(t, r, c, time.Second)
		for _, drop := range []func(){
			func() {},
			func() { _, _ = r.QueueDelete(queue+".level.0", false, false, false) },
			func() { _ = r.ExchangeDelete(queue+".level.0", false, false) },
		} {
			drop()
			if err := c.PublishIn(t.Context(), 900*time.Millisecond, &reprise.Message{RoutingKey: queue}); err != nil {
				t.Fatal(err)
			}
			r.take(queue)
		}
		published := seen.of(reprise.EventPublished)
		if len(published) != 3 {
			t.Errorf("got events %+v, want 3", published)
		}
		for _, e := range published {
			if e.Err != nil || e.MessageID == "" || e.Took <= 0 {
				t.Errorf("event: got %+v, want an ID, a duration and no error", e)
			}
		}
	})
}

// A message arrives at its due time even if it first waits in this process, because the connection is blocked.
func TestPublishAtIsNotLateAfterBlockedConnection(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		var publishing *alarmConn
		c := dial(func(c *reprise.Config) {
			memory := c.Dial
			var dials int32
			c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := memory(ctx, network, addr)
				if dials++; err == nil && dials == publishes {
					publishing = newAlarmConn(conn)
					conn = publishing
				}
				return conn, err
			}
		})
		_, queue := calendar(t, r, c, time.Minute)
		for delay, late := range map[time.Duration]time.Duration{
			17 * time.Second:         0,
			40 * time.Second:         0,
			12500 * time.Millisecond: 0,
			5 * time.Second:          7 * time.Second, // due before it could be sent
		} {
			publishing.inject(t, lowOnMemory)
			synctest.Wait()
			published := make(chan error)
			due := time.Now().Add(delay)
			go func() { published <- c.PublishAt(t.Context(), due, &reprise.Message{RoutingKey: queue}) }()
			time.Sleep(12 * time.Second)
			publishing.inject(t, "")
			if err := <-published; err != nil {
				t.Fatal(err)
			}
			r.take(queue)
			if after := time.Since(due); after < late || after > late+time.Second+50*time.Millisecond {
				t.Errorf("message with a delay of %v: got %v late, want %v", delay, after, late)
			}
		}
	})
}

// If the connection is lost at any frame, PublishIn waits for the next connection, like Publish.
func TestPublishInSurvivesLostConnection(t *testing.T) {
	t.Parallel()
	// A message that is due before its queues are declared is sent at once, and its frames may be cut: ErrUnconfirmed.
	const delay = 10 * time.Second
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		proxy := testkit.NewProxy(t, b.URL)
		_, queue := calendar(t, r, dial(t, b.URL), delay)
		want := map[string]bool{}
		for frame := range 7 { // the frames of the client's first requests
			for _, direction := range []testkit.Direction{testkit.ToServer, testkit.ToClient} {
				c := dial(t, proxy.URL())
				cut := proxy.CutBeforeFrame(direction, frame+1)
				id := fmt.Sprintf("cut before frame %d %s", frame+1, direction)
				if err := c.PublishIn(t.Context(), delay, &reprise.Message{MessageID: id, RoutingKey: queue}); err != nil {
					t.Fatalf("message %s: %v", id, err)
				}
				want[id] = true
				<-cut
				if err := c.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		for len(want) > 0 {
			delete(want, r.take(queue).MessageId)
		}
	})
}

func TestPublishInTimesOutLikePublish(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		proxy := testkit.NewProxy(t, b.URL)
		c := dial(t, proxy.URL(), func(c *reprise.Config) { c.ConfirmTimeout = 100 * time.Millisecond })
		proxy.Refuse()
		proxy.Cut()
		c.log.wait(t, "connection lost", 2)
		err := c.PublishIn(t.Context(), time.Hour, &reprise.Message{RoutingKey: "q"})
		if !errors.Is(err, reprise.ErrDisconnected) || errors.Is(err, reprise.ErrUnconfirmed) {
			t.Errorf("no connection: got %v, want ErrDisconnected", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.PublishIn(ctx, time.Hour, &reprise.Message{RoutingKey: "q"}); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled context: got %v, want context.Canceled", err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.PublishIn(t.Context(), time.Hour, &reprise.Message{RoutingKey: "q"}); !errors.Is(err, reprise.ErrClosed) {
			t.Errorf("closed client: got %v, want ErrClosed", err)
		}
	})
}
