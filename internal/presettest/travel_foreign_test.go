package presettest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// way is a way on which a message travels through Reprise to the next consumer.
type way struct {
	name   string
	parked bool // whether a worker parks the message first
	routed bool // whether the way depends on replay.Routing

	// send sends the messages on their way. It returns the number of messages that Reprise refused.
	send func(s *sharedSystem, t *testing.T, r replay.Routing) (refused int)
}

var ways = []way{
	{"retry", false, false, (*sharedSystem).retry},
	{"park", true, false, (*sharedSystem).shovel},
	{"redrive", true, true, (*sharedSystem).redrive},
	{"replay", true, true, (*sharedSystem).replay},
	{"replay to the queue", true, true, (*sharedSystem).replayToQueue},
	{"edit", true, true, (*sharedSystem).edit},
	{"schedule", false, false, (*sharedSystem).schedule},
}

// The messages of each cell of the table. The program has failed the second message before Reprise handles it.
var travelers = []string{"new", "failed before"}

// This table contains each published design, each way of a message through Reprise, and each source of routing. A program
// that knows only the published code handles the message next, fails it once more, and must get it back: with the original
// routing key, and, unless the message was retried, with a retry count that starts again. If Reprise cannot achieve this, it
// refuses to send the message, which stays where it is.
func TestMessagesTravelToForeignPrograms(t *testing.T) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		m := mgmtapi.API{URL: api, User: "guest", Password: "guest"}
		for design, of := range foreignDesigns {
			for _, w := range ways {
				for _, source := range []string{"preset", "management API", "nothing"} {
					if source != "preset" && !w.routed {
						continue
					}
					t.Run(design+"/"+w.name+"/routing from "+source, func(t *testing.T) {
						if design != "coverart" { // its queue names are fixed
							t.Parallel()
						}
						f, failedQueue, strategy := of(t, b)
						s := newSharedSystem(t, b, f, failedQueue, strategy)
						r := map[string]replay.Routing{
							"preset":         {Workers: []reprise.WorkerConfig{{Queue: f.queue, Strategy: strategy}}},
							"management API": {Bindings: m.Topology},
						}[source]
						refuses := source == "nothing" && design != "staking" || w.name == "schedule" && design == "cdnpurge"
						s.travel(t, w, r, refuses)
					})
				}
			}
		}
	})
}

// travel sends the messages on their way and compares the result with the expected result.
func (s *sharedSystem) travel(t *testing.T, w way, r replay.Routing, refuses bool) {
	t.Helper()
	deliveries, err := s.ch.Consume(s.queue, "program", false, false, false, false, nil)
	ok(t, err)
	if w.name != "schedule" { // a scheduled message is always new
		s.publish(t, "failed before")
		ok(t, s.fail(s.ch, s.next(t, deliveries)))
		testkit.Eventually(t, coverArtTimeout, func() bool { return s.depth(t, s.queue) == 0 })
	}
	ok(t, s.ch.Cancel("program", false))
	for d := range deliveries { // a message that has already returned
		ok(t, d.Nack(false, true))
	}
	if w.parked {
		s.publish(t, "new")
		s.park(t, len(travelers))
	}
	refused := w.send(s, t, r)
	if want := map[bool]int{true: len(travelers)}[refuses]; refused != want {
		t.Fatalf("refused messages: got %d, want %d", refused, want)
	}
	if !refuses {
		s.consumeForeign(t, w)
	}
	for _, queue := range append(slices.Clone(s.queues), s.failedQueue) {
		want := 0
		if refuses && w.name == "redrive" && queue == s.failedQueue {
			want = len(travelers)
		}
		testkit.Eventually(t, coverArtTimeout, func() bool { return s.depth(t, queue) == want })
	}
	total, err := s.archive.Count(t.Context(), failed.Filter{Queue: params.Text(s.queue), States: []failed.State{failed.Failed}})
	ok(t, err)
	if kept := refuses && w.parked && w.name != "redrive"; kept && total.N != int64(len(travelers)) {
		t.Errorf("failed messages in the archive: got %d, want %d", total.N, len(travelers))
	}
}

// next returns the next delivery. It reports a channel that the broker has closed because of an error of the program.
func (s *sharedSystem) next(t *testing.T, deliveries <-chan amqp.Delivery) amqp.Delivery {
	t.Helper()
	select {
	case d, open := <-deliveries:
		if !open {
			t.Fatalf("the broker has closed the channel of the program: %v", <-s.closed)
		}
		return d
	case <-time.After(coverArtTimeout):
		t.Fatal("the program must receive another message")
	}
	return amqp.Delivery{}
}

// consumeForeign acts as the program. It fails each message once as the design requires, and handles the retry.
func (s *sharedSystem) consumeForeign(t *testing.T, w way) {
	t.Helper()
	ok(t, s.ch.Qos(1, 0, false))
	deliveries, err := s.ch.Consume(s.queue, "", false, false, false, false, nil)
	ok(t, err)
	seen := map[string]int{}
	for range 2 * len(travelers) {
		d := s.next(t, deliveries)
		seen[d.MessageId]++
		if d.RoutingKey != s.key {
			t.Errorf("message %s, delivery %d: got routing key %q, want %q", d.MessageId, seen[d.MessageId], d.RoutingKey, s.key)
		}
		if want := cmp.Or(map[string]string{"edit": "edited"}[w.name], "body"); string(d.Body) != want {
			t.Errorf("message %s: got body %q, want %q", d.MessageId, d.Body, want)
		}
		if seen[d.MessageId] == 2 {
			ok(t, d.Ack(false))
			continue
		}
		if err := s.fresh(d); err != nil && w.name != "retry" && w.name != "park" {
			t.Errorf("message %s has an earlier attempt: %v", d.MessageId, err)
		}
		ok(t, s.fail(s.ch, d))
	}
	for _, id := range travelers {
		if seen[id] != 2 {
			t.Errorf("deliveries of message %s: got %d, want 2", id, seen[id])
		}
	}
}

// retry lets a worker fail the messages, and stops it after their retries have begun.
func (s *sharedSystem) retry(t *testing.T, _ replay.Routing) (refused int) {
	s.publish(t, "new")
	again := make(chan string, len(travelers))
	stop := s.work(t, func(ctx context.Context, m *reprise.Delivery) error {
		if first := map[string]int{"new": 1, "failed before": 2}[m.MessageID]; m.Attempt == first {
			return errors.New("not yet")
		}
		again <- m.MessageID
		<-ctx.Done() // the program gets the message after the worker stops
		return ctx.Err()
	})
	for range travelers {
		select {
		case <-again:
		case <-time.After(coverArtTimeout):
			t.Error("messages were not retried")
		}
	}
	stop()
	return 0
}

// shovel moves parked messages to their original target, without changes. Only the headers of Reprise, or the design,
// specify this target.
func (s *sharedSystem) shovel(t *testing.T, _ replay.Routing) (refused int) {
	for range travelers {
		take(t, s.ch, s.failedQueue, func(d amqp.Delivery) error {
			exchange, key := s.exchange, d.RoutingKey
			if recorded, found := d.Headers[topology.HeaderRoutingKey]; found {
				exchange, _ = d.Headers[topology.HeaderExchange].(string)
				key, _ = recorded.(string)
			}
			return testkit.Republish(s.ch, exchange, key, d, func(*amqp.Publishing) {})
		})
	}
	return 0
}

func (s *sharedSystem) redrive(t *testing.T, r replay.Routing) (refused int) {
	_, sent, err := replay.Redrive(t.Context(), s.client, replay.RedriveConfig{
		From: s.failedQueue, Routing: r, Origin: func(*reprise.Delivery) string { return s.queue },
	})
	if _, byName := errors.AsType[*replay.RouteError](err); !byName {
		ok(t, err)
	}
	return len(travelers) - sent
}

func (s *sharedSystem) replay(t *testing.T, r replay.Routing) (refused int) {
	return s.replayTo(t, r, nil)
}

func (s *sharedSystem) replayToQueue(t *testing.T, r replay.Routing) (refused int) {
	return s.replayTo(t, r, &failed.Target{RoutingKey: s.queue})
}

func (s *sharedSystem) replayTo(t *testing.T, r replay.Routing, to *failed.Target) (refused int) {
	s.ingest(t)
	replay, err := s.archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}, To: to}, "me")
	ok(t, err)
	return s.finish(t, r, replay.ID)
}

func (s *sharedSystem) edit(t *testing.T, r replay.Routing) (refused int) {
	s.ingest(t)
	list, _, err := s.archive.List(t.Context(), failed.Filter{All: true}, store.Page{Size: 10})
	ok(t, err)
	for _, m := range list {
		whole, err := s.archive.Get(t.Context(), m.ID)
		ok(t, err)
		content := whole.Content
		content.Body = []byte("edited")
		replay, err := s.archive.EditAndReplay(t.Context(), m.ID, 0, content, failed.Plan{}, "me")
		ok(t, err)
		refused += s.finish(t, r, replay.ID)
	}
	return refused
}

// finish sends the messages of a replay.
func (s *sharedSystem) finish(t *testing.T, r replay.Routing, id failed.ReplayID) (refused int) {
	replayer := replay.New(s.client, s.archive, replay.Config{Routing: r})
	replay, err := replayer.Finish(t.Context(), id)
	ok(t, err)
	return int(replay.Refused)
}

// schedule schedules messages with a client that has a worker of the design.
func (s *sharedSystem) schedule(t *testing.T, _ replay.Routing) (refused int) {
	_, err := reprise.NewWorker(s.client, reprise.WorkerConfig{
		Queue: s.queue, Strategy: s.strategy, Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil }),
	})
	ok(t, err)
	for _, id := range travelers {
		err := s.client.PublishIn(t.Context(), time.Millisecond, &reprise.Message{
			Exchange: s.exchange, RoutingKey: s.key, MessageID: id, Body: []byte("body"),
		})
		if errors.Is(err, reprise.ErrInvalidMessage) {
			refused++
			continue
		}
		ok(t, err)
	}
	return refused
}

// park runs a worker until it has parked n messages.
func (s *sharedSystem) park(t *testing.T, n int) {
	t.Helper()
	stop := s.work(t, func(context.Context, *reprise.Delivery) error { return reprise.Park(errors.New("no")) })
	testkit.Eventually(t, coverArtTimeout, func() bool { return s.depth(t, s.failedQueue) == n })
	stop()
}

// work runs a worker until the caller stops it.
func (s *sharedSystem) work(t *testing.T, handle reprise.HandlerFunc) (stop func()) {
	t.Helper()
	worker, err := reprise.NewWorker(s.client, reprise.WorkerConfig{
		Queue: s.queue, Strategy: s.strategy, Concurrency: len(travelers), DrainTimeout: time.Millisecond, Handler: handle,
	})
	ok(t, err)
	ended := make(chan error, 1)
	ctx, end := context.WithCancel(t.Context())
	go func() { ended <- worker.Run(ctx) }()
	return func() {
		end()
		<-ended // Run returns after the canceled attempts
	}
}

// ingest moves the parked messages to the archive.
func (s *sharedSystem) ingest(t *testing.T) {
	t.Helper()
	in, err := ingest.New(s.client, s.archive, ingest.Config{
		Queues: []string{s.failedQueue}, Origin: func(*reprise.Delivery) string { return s.queue },
	})
	ok(t, err)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	testkit.Eventually(t, coverArtTimeout, func() bool {
		total, err := s.archive.Count(t.Context(), failed.Filter{All: true})
		ok(t, err)
		return total.N == int64(len(travelers))
	})
	end()
	ok(t, <-ended)
}

// sharedSystem is a system in which both a worker and a foreign program consume.
type sharedSystem struct {
	*foreignProgram
	failedQueue string
	strategy    topology.Strategy
	client      *reprise.Client
	ch          *amqp.Channel // of the program
	closed      <-chan *amqp.Error
	archive     *store.Archive
}

func newSharedSystem(t *testing.T, b testkit.Target, f *foreignProgram, failedQueue string, strategy topology.Strategy) *sharedSystem {
	t.Helper()
	conn, err := amqp.Dial(b.URL)
	ok(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	s := &sharedSystem{foreignProgram: f, failedQueue: failedQueue, strategy: strategy}
	levels, err := topology.Levels{}.Schedule(f.exchange, f.key, time.Second)
	ok(t, err)
	remove := func() {
		ch, err := conn.Channel()
		ok(t, err)
		for _, q := range levels.Topology.Queues {
			_, err := ch.QueueDelete(q.Name, false, false, false)
			ok(t, err)
		}
		for _, x := range levels.Topology.Exchanges {
			ok(t, ch.ExchangeDelete(x.Name, false, false))
		}
		for _, name := range append(slices.Clone(f.queues), failedQueue) {
			_, err := ch.QueueDelete(name, false, false, false)
			ok(t, err)
		}
		for _, name := range f.exchanges {
			ok(t, ch.ExchangeDelete(name, false, false))
		}
	}
	remove()
	t.Cleanup(remove)
	s.ch, err = conn.Channel()
	ok(t, err)
	s.closed = s.ch.NotifyClose(make(chan *amqp.Error, 1))
	ok(t, f.declare(s.ch))
	s.client, err = reprise.Dial(t.Context(), b.URL, nil)
	ok(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), coverArtTimeout)
		defer cancel()
		ok(t, s.client.Close(ctx))
	})
	ok(t, s.client.Declare(t.Context(), strategy.Route.Topology(f.queue))) // the failed queue
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "failed.db")+"?_pragma=synchronous(OFF)")
	ok(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s.archive, err = store.Open(t.Context(), db, store.Config{Dialect: store.SQLite})
	ok(t, err)
	return s
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *sharedSystem) publish(t *testing.T, id string) {
	t.Helper()
	ok(t, s.ch.PublishWithContext(t.Context(), s.exchange, s.key, true, false, amqp.Publishing{Body: []byte("body"), MessageId: id, DeliveryMode: amqp.Persistent}))
}

func (s *sharedSystem) depth(t *testing.T, queue string) int {
	t.Helper()
	n, err := s.client.Depth(t.Context(), queue)
	ok(t, err)
	return n
}
