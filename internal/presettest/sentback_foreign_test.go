package presettest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/console"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
	"github.com/reprisemq/reprise/topology/preset"
)

// foreignProgram is a program that implements a published design with an AMQP client. It does not know headers or queues of
// Reprise.
type foreignProgram struct {
	exchange, key string // destination of its messages
	queue         string // queue that it consumes
	queues        []string
	exchanges     []string

	declare func(ch *amqp.Channel) error

	// fail performs the steps of the design for a failed delivery.
	fail func(ch *amqp.Channel, d amqp.Delivery) error

	// fresh returns an error if the headers of a delivery indicate an earlier attempt, according to the design.
	fresh func(d amqp.Delivery) error
}

// foreignDelay is the retry delay of the designs in these tests.
const foreignDelay = 100 * time.Millisecond

// foreignCoverArt is the cover art indexer.
func foreignCoverArt() *foreignProgram {
	const base = "cover-art-archive"
	return &foreignProgram{
		exchange: base, key: "index", queue: base + ".index",
		queues:    []string{base + ".index", base + ".delete", base + ".move", base + ".retry", base + ".failed"},
		exchanges: []string{base, base + ".retry", base + ".failed"},
		declare: func(ch *amqp.Channel) error {
			errs := []error{
				ch.ExchangeDeclare(base, "direct", true, false, false, false, nil),
				ch.ExchangeDeclare(base+".retry", "fanout", true, false, false, false, nil),
				ch.ExchangeDeclare(base+".failed", "fanout", true, false, false, false, nil),
				declareQueue(ch, base+".retry", amqp.Table{"x-message-ttl": int32(foreignDelay.Milliseconds()), "x-dead-letter-exchange": base}),
				ch.QueueBind(base+".retry", "", base+".retry", false, nil),
				declareQueue(ch, base+".failed", nil),
				ch.QueueBind(base+".failed", "", base+".failed", false, nil),
			}
			for _, event := range []string{"index", "delete", "move"} {
				errs = append(errs, declareQueue(ch, base+"."+event, nil), ch.QueueBind(base+"."+event, event, base, false, nil))
			}
			return errors.Join(errs...)
		},
		fail: func(ch *amqp.Channel, d amqp.Delivery) error {
			remaining := 4
			if v, found := d.Headers["mb-retries"]; found {
				remaining, _ = strconv.Atoi(fmt.Sprint(v))
			}
			exchange := base + ".failed"
			if remaining > 0 {
				exchange = base + ".retry"
			}
			texts, _ := d.Headers["mb-exceptions"].([]any)
			return testkit.Republish(ch, exchange, d.RoutingKey, d, func(p *amqp.Publishing) {
				p.Headers = amqp.Table{"mb-retries": strconv.Itoa(remaining - 1), "mb-exceptions": append(slices.Clip(texts), any("no"))}
			})
		},
		fresh: func(d amqp.Delivery) error {
			for name, v := range d.Headers {
				if !netAMQPReads(v) {
					return fmt.Errorf("header %s is %#v, which crashes Net::AMQP", name, v)
				}
			}
			return absent(d, "mb-retries", "mb-exceptions")
		},
	}
}

// foreignStaking is a service that consumes a staking queue.
func foreignStaking(queue string) *foreignProgram {
	delay := queue + "_delay"
	return &foreignProgram{
		key: queue, queue: queue, queues: []string{queue, delay},
		declare: func(ch *amqp.Channel) error {
			return errors.Join(
				ch.ExchangeDeclare("common_dlx", "direct", true, false, false, false, amqp.Table{"x-queue-type": "quorum"}),
				declareQueue(ch, delay, amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}),
				declareQueue(ch, queue, amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "common_dlx", "x-dead-letter-routing-key": queue + "_routing_key"}),
				ch.QueueBind(delay, queue+"_routing_key", "common_dlx", false, nil),
			)
		},
		fail: func(ch *amqp.Channel, d amqp.Delivery) error {
			attempts, _ := d.Headers["x-processing-attempts"].(int32)
			return testkit.Republish(ch, "", delay, d, func(p *amqp.Publishing) {
				p.Headers["x-processing-attempts"] = attempts + 1
				p.Expiration = strconv.FormatInt(foreignDelay.Milliseconds(), 10)
			})
		},
		fresh: func(d amqp.Delivery) error { return absent(d, "x-processing-attempts") },
	}
}

// foreignWorkRetry rejects failed messages. The broker retries them.
func foreignWorkRetry(prefix string) *foreignProgram {
	work, retry := prefix+"WorkExchange", prefix+"RetryExchange"
	return &foreignProgram{
		exchange: work, key: "", queue: prefix + "WorkQueue",
		queues: []string{prefix + "WorkQueue", prefix + "RetryQueue"}, exchanges: []string{work, retry},
		declare: func(ch *amqp.Channel) error {
			return errors.Join(
				ch.ExchangeDeclare(work, "direct", true, false, false, false, nil),
				ch.ExchangeDeclare(retry, "direct", true, false, false, false, nil),
				declareQueue(ch, prefix+"WorkQueue", amqp.Table{"x-dead-letter-exchange": retry}),
				declareQueue(ch, prefix+"RetryQueue", amqp.Table{"x-dead-letter-exchange": work, "x-message-ttl": int32(foreignDelay.Milliseconds())}),
				ch.QueueBind(prefix+"WorkQueue", "", work, false, nil),
				ch.QueueBind(prefix+"RetryQueue", "", retry, false, nil),
			)
		},
		fail: func(_ *amqp.Channel, d amqp.Delivery) error { return d.Reject(false) },
		fresh: func(d amqp.Delivery) error {
			deaths, _ := d.Headers["x-death"].([]any)
			for _, e := range deaths {
				if death, _ := e.(amqp.Table); death["queue"] == prefix+"WorkQueue" {
					return fmt.Errorf("unexpected x-death: %v", death)
				}
			}
			return nil
		},
	}
}

// foreignCDNPurge has the names of the final code in the published document.
func foreignCDNPurge(prefix string) *foreignProgram {
	primary, wait := prefix+"primary-exchange", prefix+"wait-exchange"
	return &foreignProgram{
		exchange: primary, key: "routing-key-b", queue: prefix + "primary-queue",
		queues: []string{prefix + "primary-queue", prefix + "wait-queue"}, exchanges: []string{primary, wait},
		declare: func(ch *amqp.Channel) error {
			errs := []error{
				ch.ExchangeDeclare(primary, "direct", true, false, false, false, nil),
				ch.ExchangeDeclare(wait, "direct", true, false, false, false, nil),
				declareQueue(ch, prefix+"primary-queue", nil),
				declareQueue(ch, prefix+"wait-queue", amqp.Table{"x-dead-letter-exchange": primary}),
			}
			for _, key := range []string{"routing-key-a", "routing-key-b"} {
				errs = append(errs, ch.QueueBind(prefix+"primary-queue", key, primary, false, nil), ch.QueueBind(prefix+"wait-queue", key, wait, false, nil))
			}
			return errors.Join(errs...)
		},
		fail: func(ch *amqp.Channel, d amqp.Delivery) error {
			milliseconds := foreignDelay.Milliseconds()
			if last, ok := lastExpiration(d); ok {
				milliseconds = 3 * last
			}
			return testkit.Republish(ch, wait, d.RoutingKey, d, func(p *amqp.Publishing) { p.Expiration = strconv.FormatInt(milliseconds, 10) })
		},
		fresh: func(d amqp.Delivery) error {
			if last, ok := lastExpiration(d); ok {
				return fmt.Errorf("x-death contains an expiration of %d ms", last)
			}
			return nil
		},
	}
}

func lastExpiration(d amqp.Delivery) (int64, bool) {
	deaths, _ := d.Headers["x-death"].([]any)
	if len(deaths) == 0 {
		return 0, false
	}
	newest, _ := deaths[0].(amqp.Table)
	text, _ := newest["original-expiration"].(string)
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

func declareQueue(ch *amqp.Channel, name string, args amqp.Table) error {
	_, err := ch.QueueDeclare(name, true, false, false, false, args)
	return err
}

func absent(d amqp.Delivery, headers ...string) error {
	for _, name := range headers {
		if v, found := d.Headers[name]; found {
			return fmt.Errorf("header %s: got %v, want none", name, v)
		}
	}
	return nil
}

// foreignDesigns maps each design to a function that returns a program of the design, the name of the failed queue, and
// the strategy of a worker.
var foreignDesigns = map[string]func(t *testing.T, b testkit.Target) (*foreignProgram, string, topology.Strategy){
	"coverart": func(t *testing.T, b testkit.Target) (*foreignProgram, string, topology.Strategy) {
		testkit.Alone(t, b, "cover-art-archive")
		return foreignCoverArt(), preset.CoverArtFailedQueue, preset.CoverArt{RetryDelay: foreignDelay}.Strategy()
	},
	"staking": func(t *testing.T, _ testkit.Target) (*foreignProgram, string, topology.Strategy) {
		queue := testkit.Name(t, "back") + "_staking_queue"
		return foreignStaking(queue), queue + "_failed", preset.Staking{Queues: []string{queue}, RetryDelay: foreignDelay}.Strategy()
	},
	"workretry": func(t *testing.T, _ testkit.Target) (*foreignProgram, string, topology.Strategy) {
		p := testkit.Name(t, "back") + "."
		return foreignWorkRetry(p), p + "WorkQueue.failed", preset.WorkRetry{Prefix: p, RetryDelay: foreignDelay}.Strategy()
	},
	"cdnpurge": func(t *testing.T, _ testkit.Target) (*foreignProgram, string, topology.Strategy) {
		p := testkit.Name(t, "back") + "."
		return foreignCDNPurge(p), p + "failed", preset.CDNPurge{
			Exchange: p + "primary-exchange", Queue: p + "primary-queue", WaitExchange: p + "wait-exchange", WaitQueue: p + "wait-queue",
			FailedQueue: p + "failed", RoutingKeys: []string{"routing-key-a", "routing-key-b"}, First: foreignDelay,
		}.Strategy()
	},
}

// A program that knows only the published design can handle and retry all messages from Reprise: retried, replayed,
// redriven, edited and scheduled messages. It receives the original routing key, and a retry count that starts again.
func TestForeignProgramsHandleReplayedMessages(t *testing.T) {
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		m := console.Management{URL: api, User: "guest", Password: "guest"}
		for name, of := range foreignDesigns {
			for _, routing := range []string{"preset", "management API"} {
				t.Run(name+", routing from "+routing, func(t *testing.T) {
					if name != "coverart" { // its queue names are fixed
						t.Parallel()
					}
					f, failedQueue, strategy := of(t, b)
					s := newSharedSystem(t, b, f, failedQueue, strategy)
					r := failed.Routing{Workers: []reprise.WorkerConfig{{Queue: f.queue, Strategy: strategy}}}
					if routing == "management API" {
						r = failed.Routing{Bindings: m.Bindings}
					}
					s.sendBack(t, r)
					s.consumeForeign(t)
				})
			}
		}
	})
}

// sharedSystem is a system in which both a worker and a foreign program consume.
type sharedSystem struct {
	*foreignProgram
	failedQueue string
	strategy    topology.Strategy
	client      *reprise.Client
	ch          *amqp.Channel
	archive     *failed.Archive
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
	ok(t, f.declare(s.ch))
	s.client, err = reprise.Dial(t.Context(), b.URL, nil)
	ok(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), coverArtTimeout)
		defer cancel()
		ok(t, s.client.Close(ctx))
	})
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "failed.db")+"?_pragma=synchronous(OFF)")
	ok(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s.archive, err = failed.Open(t.Context(), db, failed.Config{Dialect: failed.SQLite})
	ok(t, err)
	return s
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *sharedSystem) publish(t *testing.T, body string) {
	t.Helper()
	ok(t, s.ch.PublishWithContext(t.Context(), s.exchange, s.key, true, false, amqp.Publishing{Body: []byte(body), MessageId: body, DeliveryMode: amqp.Persistent}))
}

func (s *sharedSystem) depth(t *testing.T, queue string) int {
	t.Helper()
	n, err := s.client.Depth(t.Context(), queue)
	ok(t, err)
	return n
}

// sendBack runs a worker that retries one message and parks the others. It redrives one parked message, replays one, and
// edits and replays one. It also schedules one more message.
func (s *sharedSystem) sendBack(t *testing.T, r failed.Routing) {
	t.Helper()
	s.work(t)
	_, sent, err := failed.Redrive(t.Context(), s.client, failed.RedriveConfig{
		From: s.failedQueue, Limit: 1, Routing: r, Origin: func(*reprise.Message) string { return s.queue },
	})
	ok(t, err)
	if sent != 1 {
		t.Fatalf("%d messages were sent, want 1", sent)
	}
	s.ingest(t, 2)
	replayer, err := failed.NewReplayer(s.client, s.archive, failed.ReplayerConfig{Routing: r})
	ok(t, err)
	finish := func(replay *failed.Replay, err error) {
		t.Helper()
		ok(t, err)
		replay, err = replayer.Finish(t.Context(), replay.ID)
		ok(t, err)
		if replay.State == failed.ReplayStopped || replay.Sent != 1 {
			t.Fatalf("replay: got %+v, want one sent message", replay)
		}
	}
	list, _, err := s.archive.List(t.Context(), failed.Filter{All: true}, failed.Page{Size: 10})
	ok(t, err)
	for _, m := range list {
		if m.MessageID != "edited" {
			finish(s.archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{IDs: []failed.ID{m.ID}}}, "me"))
			continue
		}
		whole, err := s.archive.Get(t.Context(), m.ID)
		ok(t, err)
		content := whole.Content
		content.Body = []byte("edited by hand")
		finish(s.archive.EditAndReplay(t.Context(), m.ID, 0, content, failed.Plan{}, "me"))
	}
	ok(t, s.client.PublishIn(t.Context(), time.Millisecond, &reprise.Message{
		Exchange: s.exchange, RoutingKey: s.key, MessageID: "scheduled", Body: []byte("scheduled"),
	}))
}

// work runs a worker until it has parked three messages and retried a fourth message.
func (s *sharedSystem) work(t *testing.T) {
	t.Helper()
	retried := make(chan struct{})
	worker, err := reprise.NewWorker(s.client, reprise.WorkerConfig{
		Queue: s.queue, Strategy: s.strategy, Concurrency: 2, DrainTimeout: time.Millisecond,
		Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Message) error {
			switch {
			case string(m.Body) != "retried":
				return reprise.Park(errors.New("no"))
			case m.Attempt == 1:
				return errors.New("not yet")
			}
			close(retried)
			<-ctx.Done() // the other program gets the message after the worker stops
			return ctx.Err()
		}),
	})
	ok(t, err)
	ended := make(chan error, 1)
	ctx, end := context.WithCancel(t.Context())
	go func() { ended <- worker.Run(ctx) }()
	defer func() {
		end()
		<-ended // Run returns after the canceled attempt
	}()
	testkit.Eventually(t, coverArtTimeout, func() bool { return worker.Consuming() == nil })
	for i, body := range []string{"redriven", "replayed", "edited"} {
		s.publish(t, body)
		testkit.Eventually(t, coverArtTimeout, func() bool { return s.depth(t, s.failedQueue) == i+1 })
	}
	s.publish(t, "retried")
	select {
	case <-retried:
	case <-time.After(coverArtTimeout):
		t.Fatal("message was not retried")
	}
}

// ingest moves parked messages to the archive.
func (s *sharedSystem) ingest(t *testing.T, n int64) {
	t.Helper()
	in, err := failed.NewIngest(s.client, s.archive, failed.IngestConfig{
		Queues: []string{s.failedQueue}, Origin: func(*reprise.Message) string { return s.queue },
	})
	ok(t, err)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	testkit.Eventually(t, coverArtTimeout, func() bool {
		total, err := s.archive.Count(t.Context(), failed.Filter{All: true})
		ok(t, err)
		return total.N == n
	})
	end()
	ok(t, <-ended)
}

// consumeForeign acts as the other program. It fails each message once as the design requires, and handles the retry.
func (s *sharedSystem) consumeForeign(t *testing.T) {
	t.Helper()
	ok(t, s.ch.Qos(1, 0, false))
	deliveries, err := s.ch.Consume(s.queue, "", false, false, false, false, nil)
	ok(t, err)
	seen := map[string]int{}
	waiting := time.After(coverArtTimeout)
	for done := 0; done < 5; {
		var d amqp.Delivery
		select {
		case d = <-deliveries:
		case <-waiting:
			t.Fatalf("all messages must be delivered: got %v", seen)
		}
		body := string(d.Body)
		seen[body]++
		if d.RoutingKey != s.key {
			t.Errorf("message %s, delivery %d: got routing key %q, want %q", body, seen[body], d.RoutingKey, s.key)
		}
		if seen[body] == 2 {
			done++
			ok(t, d.Ack(false))
			continue
		}
		if err := s.fresh(d); err != nil && body != "retried" {
			t.Errorf("message %s has an earlier attempt: %v", body, err)
		}
		ok(t, s.fail(s.ch, d))
	}
	for _, body := range []string{"redriven", "replayed", "edited by hand", "retried", "scheduled"} {
		if seen[body] != 2 {
			t.Errorf("deliveries of message %s: got %d, want 2", body, seen[body])
		}
	}
	for _, queue := range append(slices.Clone(s.queues), s.failedQueue) {
		testkit.Eventually(t, coverArtTimeout, func() bool { return s.depth(t, queue) == 0 })
	}
}
