package presettest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
)

// coverArtTimeout is the timeout for expected events.
const coverArtTimeout = 2 * time.Minute

// perlIndexer has the wire behavior of CAA-indexer, the Perl program of this design: the declarations, the headers and
// their types, acknowledgements of all messages, and no confirms.
//
// The program does not set a prefetch limit. It holds each event for a grace period, and acknowledges equal events that
// arrive during this period. If an event fails, the program publishes a copy without a confirm: transient, with priority
// 1, the name of its user, the headers mb-retries (a string) and mb-exceptions, and no other headers or properties. It
// acknowledges each event, whether the event succeeded or failed.
type perlIndexer struct {
	t      *testing.T
	ch     *amqp.Channel
	delay  time.Duration // x-message-ttl of the retry queue
	grace  time.Duration
	handle func(body string) error

	mu      sync.Mutex // guards the channel and the following fields, because timers run concurrently
	pending map[string]bool
	timers  sync.WaitGroup
}

func (p *perlIndexer) declare() {
	p.t.Helper()
	ok := func(err error) {
		if err != nil {
			p.t.Fatalf("cannot declare queues as the Perl program does: %v", err)
		}
	}
	queue := func(name string, args amqp.Table) {
		_, err := p.ch.QueueDeclare(name, true, false, false, false, args)
		ok(err)
	}
	ok(p.ch.ExchangeDeclare("cover-art-archive", "direct", true, false, false, false, nil))
	queue("cover-art-archive.retry", amqp.Table{
		"x-message-ttl":          int32(p.delay.Milliseconds()), // Net::AMQP sends the type I
		"x-dead-letter-exchange": "cover-art-archive",
	})
	ok(p.ch.ExchangeDeclare("cover-art-archive.retry", "fanout", true, false, false, false, nil))
	ok(p.ch.QueueBind("cover-art-archive.retry", "", "cover-art-archive.retry", false, nil))
	ok(p.ch.ExchangeDeclare("cover-art-archive.failed", "fanout", true, false, false, false, nil))
	queue("cover-art-archive.failed", nil)
	ok(p.ch.QueueBind("cover-art-archive.failed", "", "cover-art-archive.failed", false, nil))
	for _, event := range []string{"delete", "index", "move"} {
		queue("cover-art-archive."+event, nil)
		ok(p.ch.QueueBind("cover-art-archive."+event, event, "cover-art-archive", false, nil))
	}
}

// consume starts a consumer, and returns when the broker has confirmed it. The channel is closed at the end of the
// test.
func (p *perlIndexer) consume(event string) {
	p.t.Helper()
	deliveries, err := p.ch.Consume("cover-art-archive."+event, "", false, false, false, false, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.pending = map[string]bool{}
	p.t.Cleanup(func() {
		_ = p.ch.Close() // closes deliveries; the connection may have been lost
		p.timers.Wait()
	})
	p.timers.Go(func() {
		for d := range deliveries {
			p.consumed(event, d)
		}
	})
}

func (p *perlIndexer) consumed(event string, d amqp.Delivery) {
	for name, v := range d.Headers {
		if !netAMQPReads(v) {
			p.t.Errorf("header %s of message %q must not crash Net::AMQP: got %#v", name, d.Body, v)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := event + ":" + string(d.Body)
	if p.pending[id] {
		_ = d.Ack(false) // an error means that the channel is closed, and its deliveries are no longer valid
		return
	}
	p.pending[id] = true
	p.timers.Go(func() {
		<-time.After(p.grace)
		p.due(id, d)
	})
}

func (p *perlIndexer) due(id string, d amqp.Delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pending, id)
	if err := p.handle(string(d.Body)); err != nil {
		remaining := 4
		if v, found := d.Headers["mb-retries"]; found {
			remaining, _ = strconv.Atoi(fmt.Sprint(v)) // Perl converts text to a number, and invalid text to 0
		}
		exchange := "cover-art-archive.failed"
		if remaining > 0 {
			exchange = "cover-art-archive.retry"
		}
		texts, _ := d.Headers["mb-exceptions"].([]any)
		_ = p.ch.PublishWithContext(p.t.Context(), exchange, d.RoutingKey, false, false, amqp.Publishing{
			ContentType: "application/octet-stream", DeliveryMode: amqp.Transient, Priority: 1, Timestamp: time.Now(), UserId: "guest",
			Body: d.Body,
			Headers: amqp.Table{
				"mb-retries":    strconv.Itoa(remaining - 1), // AnyEvent::RabbitMQ sends numbers as strings
				"mb-exceptions": append(slices.Clip(texts), any(err.Error())),
			},
		})
	}
	_ = d.Ack(false)
}

// netAMQPReads reports whether the Perl client can decode the type of a field. With the deployed patch, it knows the
// types V S I l D F A T t, and crashes on V.
func netAMQPReads(v any) bool {
	switch v := v.(type) {
	case string, int32, int64, bool, time.Time, amqp.Decimal:
		return true
	case []any:
		return !slices.ContainsFunc(v, func(e any) bool { return !netAMQPReads(e) })
	case amqp.Table:
		return !slices.ContainsFunc(slices.Collect(maps.Values(v)), func(e any) bool { return !netAMQPReads(e) })
	}
	return false
}

// journal records the error messages of attempts, by event.
type journal struct {
	mu    sync.Mutex
	texts map[string][]string
	by    map[string]int // number of attempts of each program
}

// fails records an attempt and returns an error.
func (j *journal) fails(program, body string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := fmt.Sprintf("attempt %d, by %s", len(j.texts[body])+1, program)
	j.texts[body] = append(j.texts[body], text)
	j.by[program]++
	return errors.New(text)
}

// Events that always fail alternate between a worker and the Perl program on the same queues, which either program has
// declared. Each event has one attempt and four retries in total, and is parked with five error messages.
func TestCoverArtSharesQueuesWithPerlIndexer(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		testkit.Alone(t, b, "cover-art-archive")
		for _, first := range []string{"declared by the worker", "declared by the program in Perl"} {
			t.Run(first, func(t *testing.T) {
				design := preset.CoverArt{RetryDelay: 30 * time.Millisecond}
				ch := emptyCoverArt(t, b)
				j := &journal{texts: map[string][]string{}, by: map[string]int{}}
				indexer := &perlIndexer{
					t: t, ch: ch, delay: design.RetryDelay, grace: time.Millisecond,
					handle: func(body string) error { return j.fails("Perl", body) },
				}
				if first == "declared by the program in Perl" {
					indexer.declare()
				}
				workCoverArt(t, b, reprise.WorkerConfig{
					Queue: "cover-art-archive.index", Strategy: design.Strategy(),
					Debounce: &reprise.Debounce{Window: time.Millisecond, Key: reprise.ContentKey},
					Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
						return j.fails("Go", string(m.Body))
					}),
				})
				indexer.declare() // the program declares its queues at each start
				indexer.consume("index")

				const events = 20
				for i := range events {
					// These are the properties of the events that the database triggers of MusicBrainz publish.
					err := ch.PublishWithContext(t.Context(), "cover-art-archive", "index", false, false, amqp.Publishing{
						DeliveryMode: amqp.Persistent, Body: fmt.Appendf(nil, "event %d", i),
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				failed, err := ch.Consume("cover-art-archive.failed", "", true, false, false, false, nil)
				if err != nil {
					t.Fatal(err)
				}
				timeout := time.After(coverArtTimeout)
				for range events {
					select {
					case d := <-failed:
						var texts []any
						j.mu.Lock()
						for _, text := range j.texts[string(d.Body)] {
							texts = append(texts, text)
						}
						j.mu.Unlock()
						if diff := cmp.Diff(texts, d.Headers["mb-exceptions"]); len(texts) != 5 || diff != "" {
							t.Errorf("attempts of event %s: got %d, want 5; -attempts +mb-exceptions:\n%s", d.Body, len(texts), diff)
						}
						if left := fmt.Sprint(d.Headers["mb-retries"]); left != "0" && left != "-1" || d.RoutingKey != "index" {
							t.Errorf("parked event %s: got %s retries left and key %q, want 0 or -1 and index", d.Body, left, d.RoutingKey)
						}
					case <-timeout:
						t.Fatalf("all events must be parked: got attempts %v", j.texts)
					}
				}
				if j.by["Go"] == 0 || j.by["Perl"] == 0 || j.by["Go"]+j.by["Perl"] != 5*events {
					t.Errorf("attempts: got %v, want %d in total and at least one from each program", j.by, 5*events)
				}
			})
		}
	})
}

// emptyCoverArt returns a channel. It removes the queues and exchanges of the design, immediately and at the end of the
// test.
func emptyCoverArt(t *testing.T, b testkit.Target) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	remove := func() {
		ch, err := conn.Channel()
		if err != nil {
			t.Error(err)
			return
		}
		for _, suffix := range []string{".index", ".delete", ".move", ".retry", ".failed"} {
			if _, err := ch.QueueDelete("cover-art-archive"+suffix, false, false, false); err != nil {
				t.Error(err)
			}
		}
		for _, suffix := range []string{"", ".retry", ".failed"} {
			if err := ch.ExchangeDelete("cover-art-archive"+suffix, false, false); err != nil {
				t.Error(err)
			}
		}
	}
	remove()
	t.Cleanup(remove)
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// workCoverArt runs a worker until the test ends, and returns when it consumes.
func workCoverArt(t *testing.T, b testkit.Target, cfg reprise.WorkerConfig) {
	t.Helper()
	client, err := reprise.Dial(t.Context(), b.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	worker, err := reprise.NewWorker(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(context.WithoutCancel(t.Context())) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), coverArtTimeout)
		defer cancel()
		if err := errors.Join(worker.Shutdown(ctx), <-ended, client.Close(ctx)); err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, coverArtTimeout, func() bool { return worker.Status().Err == nil })
}
