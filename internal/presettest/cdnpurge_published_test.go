package presettest

import (
	"context"
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// This test uses the names and the declarations of the published code. By default, its client declares exchanges and
// queues as transient and auto-delete. A worker joins with the options of the preset or with its own declarations,
// before or after the other program.
func TestCDNPurgeWithPublishedDeclarations(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		// By default, RabbitMQ 4.3 refuses transient queues.
		transientQueues := b.Name != "rabbitmq-4.3"
		design := preset.CDNPurgePublished()
		design.First, design.Jitter = 20*time.Millisecond, -1
		options := design
		options.TransientExchanges, options.TransientQueues, options.AutoDelete = true, transientQueues, true
		for name, config := range map[string]reprise.WorkerConfig{
			"options":  {Strategy: options.Strategy()},
			"topology": {Strategy: design.Strategy(), Topology: topology.Topology{Exchanges: options.Topology().Exchanges, Queues: options.Topology().Queues[:2]}},
		} {
			for _, first := range []string{"worker", "other"} {
				t.Run(name+", "+first+" first", func(t *testing.T) {
					testkit.Alone(t, b, design.Queue)
					p := publishedSystem{t: t, transientQueues: transientQueues}
					conn, err := amqp.Dial(b.URL)
					if err != nil {
						t.Fatal(err)
					}
					if p.ch, err = conn.Channel(); err != nil {
						t.Fatal(err)
					}
					returns := p.ch.NotifyReturn(make(chan amqp.Return, 1))
					defer conn.Close()
					defer p.remove()
					if first == "other" {
						p.declare()
					}
					consuming, seen := make(chan struct{}, 10), make(chan *reprise.Delivery, 10)
					client, err := reprise.Dial(t.Context(), b.URL, &reprise.Config{Observer: reprise.ObserverFunc(func(e reprise.Event) {
						if e.Kind == reprise.EventConsuming {
							consuming <- struct{}{}
						}
					})})
					if err != nil {
						t.Fatal(err)
					}
					defer client.Close(context.Background())
					config.Queue = design.Queue
					config.Handler = reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
						seen <- m
						if m.Attempt < 3 {
							return errQueueFull
						}
						return nil
					})
					worker, err := reprise.NewWorker(client, config)
					if err != nil {
						t.Fatal(err)
					}
					ended := make(chan error, 1)
					go func() { ended <- worker.Run(context.WithoutCancel(t.Context())) }()
					select {
					case <-consuming:
					case err := <-ended:
						t.Fatal(err)
					}
					p.declare()
					if err := p.ch.PublishWithContext(t.Context(), "primary-exchange", "routing-key-b", true, false, amqp.Publishing{Body: []byte("purge")}); err != nil {
						t.Fatal(err)
					}
					for attempt := 1; attempt <= 3; attempt++ {
						select {
						case m := <-seen:
							if m.Attempt != attempt || m.RoutingKey != "routing-key-b" || m.Exchange != "primary-exchange" || string(m.Body) != "purge" {
								t.Errorf("attempt %d: got %+v, want the number of the attempt, and the original message", attempt, m)
							}
						case r := <-returns:
							t.Fatalf("message must not be returned: got %+v", r)
						case <-time.After(purgeTimeout):
							t.Fatalf("attempt %d did not begin", attempt)
						}
					}
					if err := errors.Join(worker.Shutdown(t.Context()), <-ended); err != nil {
						t.Error(err)
					}
					// The queue was deleted with its last consumer, as declared.
					testkit.Eventually(t, purgeTimeout, func() bool {
						ch, err := conn.Channel()
						if err != nil {
							return false
						}
						_, err = ch.QueueDeclarePassive("primary-queue", !transientQueues, true, false, false, nil)
						return err != nil
					})
				})
			}
		}
	})
}

// publishedSystem acts as the published program, whose declarations are transient and auto-delete.
type publishedSystem struct {
	t               *testing.T
	ch              *amqp.Channel
	transientQueues bool
}

func (p publishedSystem) declare() {
	p.t.Helper()
	const transient, autoDelete = true, true
	must := func(err error) {
		if err != nil {
			p.t.Fatal(err)
		}
	}
	for exchange, queue := range map[string]string{"primary-exchange": "primary-queue", "wait-exchange": "wait-queue"} {
		must(p.ch.ExchangeDeclare(exchange, "direct", !transient, autoDelete, false, false, nil))
		var args amqp.Table
		if queue == "wait-queue" {
			args = amqp.Table{"x-dead-letter-exchange": "primary-exchange"}
		}
		_, err := p.ch.QueueDeclare(queue, !p.transientQueues, autoDelete, false, false, args)
		must(err)
		for _, key := range []string{"routing-key-a", "routing-key-b"} {
			must(p.ch.QueueBind(queue, key, exchange, false, nil))
		}
	}
}

func (p publishedSystem) remove() {
	for _, queue := range []string{"primary-queue", "wait-queue", "primary-queue.failed"} {
		if _, err := p.ch.QueueDelete(queue, false, false, false); err != nil {
			p.t.Error(err)
		}
	}
	for _, exchange := range []string{"primary-exchange", "wait-exchange"} {
		if err := p.ch.ExchangeDelete(exchange, false, false); err != nil {
			p.t.Error(err)
		}
	}
}
