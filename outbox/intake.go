package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// DefaultExchange is the default of IntakeConfig.Exchange.
const DefaultExchange = "reprise.schedule"

// IntakeConfig configures an Intake. The zero value means the defaults.
type IntakeConfig struct {
	// Exchange is the fanout exchange to which programs publish. The queues of the intake are {Exchange}, {Exchange}.expired
	// and {Exchange}.failed. Default: "reprise.schedule".
	Exchange string

	// Destinations are the exchanges to which messages may go; "" is the default exchange, which routes to any queue. The
	// first is the destination of messages without the header x-reprise-to-exchange. Whoever may publish to Exchange can
	// publish to all of them with the permissions of the relay. Default: the default exchange alone.
	Destinations []string
}

func (c IntakeConfig) withDefaults() IntakeConfig {
	c.Exchange = cmp.Or(c.Exchange, DefaultExchange)
	if c.Destinations = slices.Clone(c.Destinations); len(c.Destinations) == 0 {
		c.Destinations = []string{""}
	}
	return c
}

// Validate reports invalid settings and their valid values.
func (c IntakeConfig) Validate() error {
	c = c.withDefaults()
	var errs []error
	if len(c.Exchange) > 200 || !isText(c.Exchange) {
		errs = append(errs, fmt.Errorf("outbox: IntakeConfig.Exchange must be at most 200 bytes of text: got %.80q", c.Exchange))
	}
	for _, to := range c.Destinations {
		if to == c.Exchange || to == c.expired() {
			errs = append(errs, fmt.Errorf("outbox: IntakeConfig.Destinations must not contain the exchanges of the intake: got %q", to))
		}
	}
	return errors.Join(errs...)
}

func (c IntakeConfig) expired() string { return c.Exchange + ".expired" }

// Intake schedules the messages that programs in any language publish to an exchange. It stores them in a Box, whose relay
// publishes them when they are due, with their routing key.
//
//	publish ─► exchange ─► queue {Exchange} ────────► Box ─► relay ─► exchange of Destinations, same routing key
//	                        │ expires                 ▲ │
//	                        └─► {Exchange}.expired ───┘ └─ invalid ─► {Exchange}.failed
//
// These headers determine the row of a message. Without the first two, the message is due at once:
//
//	x-delay                the delay in milliseconds, as an integer, a fraction, or a text; at most ten years.
//	                       A delay below 1 means at once.
//	x-reprise-at           the time, as a timestamp, in RFC 3339, or as an integer in milliseconds since 1970
//	x-reprise-to-exchange  one of Destinations
//	x-reprise-key          Message.Key
//	x-reprise-unique       Message.Unique
//	x-reprise-unique-for   Message.UniqueFor, in milliseconds
//
// The published message has no header x-reprise-…, and x-delay is negated, as by the plugin
// rabbitmq_delayed_message_exchange, so that the message is not delayed twice. The delay begins when the Intake stores the message. A message that
// cannot be scheduled as requested is parked in {Exchange}.failed with the reason. A replay schedules it.
//
// The Intake acknowledges a message after the commit. If the connection or the process fails in between, the message is
// stored twice, both times with the MessageID of its publisher. Without a MessageID, the two messages have different
// ones. A message with x-reprise-unique is stored once. While the database accepts no writes, the Intake keeps up to 32
// messages, and the others wait in the queue. A message whose expiration passes there is stored nevertheless, and gets its
// expiration again when it leaves.
//
// Several processes may run an Intake with the same queues. One of them consumes, so messages of one key leave in the order of
// the queue.
type Intake struct {
	box    *Box
	client *reprise.Client
	cfg    IntakeConfig // with defaults
	log    *slog.Logger
}

// NewIntake returns an Intake, which does nothing until Run is called.
func NewIntake(box *Box, client *reprise.Client, cfg IntakeConfig) (*Intake, error) {
	if box == nil || client == nil {
		return nil, errors.New("outbox: NewIntake: box and client must not be nil")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	in := &Intake{box: box, client: client, cfg: cfg, log: box.cfg.Logger.With("exchange", cfg.Exchange)}
	_, err := in.worker(in.cfg.Exchange)
	return in, err
}

// Run declares the exchange and its queues, and schedules messages until ctx is done. It returns the errors of
// reprise.Worker.Run, for example if the exchange exists with another type. Call Run once at a time.
func (in *Intake) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	queues := in.queues()
	errs := make([]error, len(queues))
	var running sync.WaitGroup
	for i, queue := range queues {
		running.Go(func() {
			defer stop()
			w, err := in.worker(queue)
			if err == nil {
				err = w.Run(ctx)
			}
			errs[i] = err
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// queues returns the queues that the intake consumes.
func (in *Intake) queues() []string { return []string{in.cfg.Exchange, in.cfg.expired()} }

// touch writes to the database, and changes nothing.
const touch = `UPDATE {relay} SET id = 1 WHERE id = 1`

// writable returns nil if the database accepts writes.
func (b *Box) writable(ctx context.Context) error {
	_, err := b.db.Write(ctx, touch)
	return err
}

// intakePrefetch is the maximum number of messages that a worker has received. If its connection fails, RabbitMQ 3.10 keeps the order
// of at most 32 messages.
const intakePrefetch = 32

// worker returns a worker that schedules the messages of a queue one after the other, so that rows follow the order of the
// queue.
func (in *Intake) worker(queue string) (*reprise.Worker, error) {
	return reprise.NewWorker(in.client, reprise.WorkerConfig{
		Queue:        queue,
		Handler:      reprise.HandlerFunc(in.take),
		AsDelivered:  true,
		Strategy:     topology.Strategy{Route: intakeRoute{topology.FailedQueue(in.cfg.Exchange)}, Marks: intakeMarks{}},
		Topology:     in.topology(queue),
		Concurrency:  1,
		Prefetch:     intakePrefetch,
		CrashLimit:   -1,
		DrainTimeout: stopLimit,
	})
}

const (
	refusals  = 4                // attempts to store a message that the database refuses, although it accepts other writes
	longProbe = 15 * time.Second // maximum time between two attempts while the database accepts no writes
)

// take schedules a message. While the database accepts no writes, take waits, and the worker receives no more messages: a
// message that is requeued instead can return behind later messages.
func (in *Intake) take(ctx context.Context, d *reprise.Delivery) error {
	m, err := in.cfg.message(d)
	if err != nil {
		return reprise.Park(err)
	}
	m.MessageID = cmp.Or(m.MessageID, rand.Text()) // the same in all attempts
	refused := 0
	for n := 0; ; n++ {
		attempt := *m
		err := in.box.Schedule(ctx, &attempt)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, reprise.ErrInvalidMessage):
			return reprise.Park(err)
		case in.box.writable(ctx) == nil:
			if refused++; refused == refusals {
				return reprise.Park(err)
			}
		}
		delay := min(longProbe, backoff(n)/8)
		in.log.Error("outbox intake failed", "queue", d.Queue, "message_id", m.MessageID, "error", err, "next_try", delay)
		if retry.Sleep(ctx, delay) != nil {
			return err
		}
	}
}

// topology returns the declarations of a queue. A single active consumer keeps the order if several processes consume.
func (in *Intake) topology(queue string) topology.Topology {
	q := unlimited(queue)
	q.Args["x-single-active-consumer"] = true
	queues := []topology.Queue{q}
	if queue == in.cfg.Exchange {
		queues = append(queues, unlimited(topology.FailedQueue(queue)))
		q.Args["x-dead-letter-exchange"] = in.cfg.expired()
		q.Args["x-dead-letter-strategy"] = "at-least-once"
		q.Args["x-overflow"] = "reject-publish" // required for at-least-once
	}
	return topology.Topology{
		Exchanges: []topology.Exchange{{Name: queue, Kind: topology.Fanout}}, // keeps the routing key
		Queues:    queues,
		Bindings:  []topology.Binding{{Exchange: queue, Queue: queue}},
	}
}

// unlimited returns a queue from which the broker drops no messages. RabbitMQ 3.10 has no value for "no limit", and since 4.0 the
// default is 20.
func unlimited(name string) topology.Queue {
	return topology.Queue{Name: name, Args: topology.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(math.MaxInt32)}}
}

// intakeRoute parks invalid messages by a copy, and requeues messages of a worker that stops.
type intakeRoute struct{ failed string }

func (intakeRoute) Topology(string) topology.Topology { return topology.Topology{} }

func (intakeRoute) Wait(topology.Delivery, time.Duration) (topology.Hop, error) {
	return topology.Hop{Way: topology.Requeue}, nil
}

func (r intakeRoute) Failed(topology.Delivery) topology.Hop {
	return topology.Hop{RoutingKey: r.failed, Topology: topology.Topology{Queues: []topology.Queue{unlimited(r.failed)}}}
}

// intakeMarks record the reason on parked messages. They ignore marks of earlier attempts, which other workers made.
type intakeMarks struct{ topology.Trail }

func (intakeMarks) Read(topology.Delivery) topology.History {
	return topology.History{RetriesLeft: topology.Undecided}
}

// Crashes returns 0, because a message that is only stored cannot crash the process.
func (intakeMarks) Crashes(topology.Delivery) int { return 0 }
