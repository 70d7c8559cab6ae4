package staking

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology/preset"
)

// Defaults of Config.
const (
	DefaultMaxRetries = 10
	DefaultUnsettled  = 100
)

// Config adjusts a Queue. The zero value, and a nil *Config, mean the defaults.
type Config struct {
	// Design is what the queue is: its type, and how long a message waits that
	// is put back. Default: a quorum queue, 5 s.
	Design preset.Staking

	// MaxRetries is how often a message can be put back, by any program: after
	// that, Requeue parks it. Default 10.
	MaxRetries int

	// Unsettled is how many messages this Queue has at a time, those included that
	// are fetched for the next Receive. When so many are received and neither
	// deleted nor put back, Receive waits. At most 65535. Default 100.
	Unsettled int

	// CrashLimit is how many receivers a message may take down with it before it
	// is parked. Default 5 on quorum queues of RabbitMQ 4.3 and later, else none:
	// before 4.3, what Stop gives back counts as well. On 4.0 to 4.2 set it below
	// 20, for what preset.Staking says about the wait queue.
	CrashLimit int

	// Client adjusts the connections: logger, TLS, and so on. Default: none.
	Client *reprise.Config
}

func (c *Config) withDefaults() Config {
	var d Config
	if c != nil {
		d = *c
	}
	d.MaxRetries = cmp.Or(d.MaxRetries, DefaultMaxRetries)
	d.Unsettled = cmp.Or(d.Unsettled, DefaultUnsettled)
	return d
}

// Validate reports settings that cannot work and what to write instead.
func (c *Config) Validate() error {
	d := c.withDefaults()
	var errs []error
	if d.MaxRetries < 0 {
		errs = append(errs, fmt.Errorf("staking: Config.MaxRetries %d: use at least 1, or 0 for %d", d.MaxRetries, DefaultMaxRetries))
	}
	if d.Unsettled < 0 || d.Unsettled > 65535 {
		errs = append(errs, fmt.Errorf("staking: Config.Unsettled %d: use 1 to 65535, or 0 for %d", d.Unsettled, DefaultUnsettled))
	}
	return errors.Join(append(errs, d.Design.Validate(), d.Client.Validate())...)
}

// settleTime is how long Stop waits for what was just deleted or put back to be
// settled; receipts that nobody has used are not waited for any longer.
const settleTime = 250 * time.Millisecond

// Queue is one of the staking queues, with the operations that the design's
// programs have: what is received stays with its receiver until it is deleted or
// put back. All methods are safe for concurrent use.
//
//	q, err := staking.Open(ctx, url, preset.StakingActiveQueue, nil)
//	err = q.Send(ctx, body)
//	m, err := q.Receive(ctx)
//	err = q.Delete(m.Receipt)         // done
//	err = q.Requeue(m.Receipt, cause) // or: again, after the delay
//
// It is a reprise.Worker whose handler waits for the verdict. So a message keeps
// all its properties when it is put back, carries why, and is parked when it has
// been put back MaxRetries times; its original is acknowledged after the broker has
// confirmed the copy; connections come back, and Receive goes on after that.
type Queue struct {
	name     string
	client   *reprise.Client
	worker   *reprise.Worker
	receipts *receipts
	received chan Received // unbuffered: until it is received, a message can be given back

	start sync.Once
	begun atomic.Bool
	ended chan struct{} // closed when the worker has ended, or is never to begin
	err   error         // why it has ended; valid after that
}

// Received is a message as Receive returns it: body, properties and headers as
// first published, errors of earlier attempts as far as they are known.
type Received struct {
	*reprise.Message

	// Receipt is what the other methods ask for. It is valid once, for the Queue
	// and the connection that it was received on.
	Receipt string

	// RetryAttempts is how often the message was put back before, by whichever
	// program.
	RetryAttempts int
}

// Open connects to the broker at url, declares the queue with all that belongs to
// it, and returns. The url is that of reprise.Dial; ctx bounds the connecting. A
// queue that exists with other arguments is a *reprise.DeclareError. Messages are
// consumed from the first Receive on.
func Open(ctx context.Context, url, name string, config *Config) (*Queue, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	c := config.withDefaults()
	q := &Queue{
		name:     name,
		receipts: newReceipts(rand.Text()[:10]),
		received: make(chan Received),
		ended:    make(chan struct{}),
	}
	client := reprise.Config{}
	if c.Client != nil {
		client = *c.Client
	}
	client.Observer = q.observer(client.Observer)
	var err error
	if q.client, err = reprise.Dial(ctx, url, &client); err != nil {
		return nil, err
	}
	strategy := c.Design.Strategy()
	q.worker, err = reprise.NewWorker(q.client, reprise.WorkerConfig{
		Queue:        name,
		Handler:      reprise.HandlerFunc(q.handle),
		Strategy:     strategy,
		Policy:       reprise.Policy{MaxAttempts: c.MaxRetries + 1},
		CrashLimit:   c.CrashLimit,
		Concurrency:  c.Unsettled,
		Prefetch:     c.Unsettled,
		DrainTimeout: settleTime,
	})
	if err == nil {
		err = q.client.Declare(ctx, strategy.Route.Topology(name))
	}
	if err != nil {
		return nil, errors.Join(err, q.client.Close(ctx))
	}
	return q, nil
}

// Name returns the name of the queue.
func (q *Queue) Name() string { return q.name }

// Send publishes a message and returns when the broker has stored it. Errors are
// those of reprise.Client.Publish.
func (q *Queue) Send(ctx context.Context, body []byte) error {
	return q.client.Publish(ctx, message(q.name, body))
}

// Receive returns the next message. It waits for one, also while there is no
// connection, until ctx ends (with its cause) or Stop is called (ErrStopped). A
// message that has ended two of its receivers' processes or connections comes
// alone: when all others have been deleted or put back, and before any other.
func (q *Queue) Receive(ctx context.Context) (Received, error) {
	q.start.Do(func() {
		q.begun.Store(true)
		go func() { // joined by Stop
			defer close(q.ended)
			q.err = q.worker.Run(context.WithoutCancel(ctx))
		}()
	})
	select {
	case m := <-q.received:
		return m, nil
	case <-ctx.Done():
		return Received{}, context.Cause(ctx)
	case <-q.ended:
		return Received{}, cmp.Or(q.err, error(ErrStopped))
	}
}

// Delete acknowledges a received message: it is done. After an error it is not
// deleted, see ErrStale and its kin. As with every AMQP client, one that was
// deleted in the very moment in which the connection is lost may come again.
func (q *Queue) Delete(receipt string) error { return q.settle("delete", receipt, nil) }

// Requeue puts a received message back, for the reason given, which may be nil: it
// comes again after the delay, its count one higher, or is parked if it has been
// put back MaxRetries times.
//
// It does not wait. The copy is published as often as it takes; until the broker
// has confirmed it the original is not acknowledged, and if the connection is lost
// before that, the original comes again.
func (q *Queue) Requeue(receipt string, reason error) error {
	return q.settle("re-queue", receipt, cmp.Or(reason, errRequeued))
}

// Park moves a received message to the failed queue, for the reason given: no
// retry will make it succeed.
func (q *Queue) Park(receipt string, reason error) error {
	return q.settle("park", receipt, reprise.Park(reason))
}

var errRequeued = errors.New("re-queued")

func (q *Queue) settle(verb, receipt string, verdict error) error {
	if err := q.receipts.settle(receipt, verdict); err != nil {
		return fmt.Errorf("staking: %s: cannot %s %q: %w", q.name, verb, receipt, err)
	}
	return nil
}

// Ping returns nil if the broker answers, and messages can be sent, and received
// if Receive was ever called. It comes right again by itself. ctx bounds the
// question.
func (q *Queue) Ping(ctx context.Context) error {
	if q.begun.Load() {
		return q.worker.Healthy(ctx)
	}
	return q.client.Healthy(ctx)
}

// Stop ends Receive, settles what was deleted and put back, gives the other
// messages back to the queue, and closes the connections, until ctx ends. Their
// receipts are worth nothing then: ErrStopped. It may be called again.
func (q *Queue) Stop(ctx context.Context) error {
	q.start.Do(func() { close(q.ended) })
	err := q.worker.Shutdown(ctx)
	q.receipts.stop()
	if err == nil {
		select {
		case <-q.ended:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return errors.Join(err, q.client.Close(ctx))
}

// handle keeps a message until its receiver has said what becomes of it, or the
// channel is gone that it came on: then the verdict is nil, and to acknowledge it
// there does nothing.
func (q *Queue) handle(ctx context.Context, m *reprise.Message) error {
	receipt, held := q.receipts.issue()
	select {
	case q.received <- Received{Message: m, Receipt: receipt, RetryAttempts: m.Attempt - 1}:
	case <-held:
	case <-ctx.Done():
	}
	select {
	case verdict := <-held:
		return verdict
	case <-ctx.Done():
		if q.receipts.withdraw(receipt) {
			return context.Cause(ctx) // given back
		}
		return <-held // it came just in time
	}
}

// observer hears when a channel is gone, and with it what receipts stand for.
func (q *Queue) observer(next reprise.Observer) reprise.Observer {
	return reprise.ObserverFunc(func(e reprise.Event) {
		_, closed := errors.AsType[*amqp.Error](e.Err)
		if e.Kind == reprise.EventDisconnected && e.Connection == "consume" ||
			e.Kind == reprise.EventInterrupted && closed { // not where the broker has cancelled the consumer alone
			q.receipts.lose()
		}
		if next != nil {
			next.Observe(e)
		}
	})
}
