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
)

// Defaults of Config.
const (
	DefaultMaxRetries = 10
	DefaultUnsettled  = 100
)

// Config configures a [Queue]. Both the zero value and a nil *Config select the defaults.
type Config struct {
	// Design sets the queue type and the retry delay. Default: quorum queues, 5 s.
	Design Design

	// MaxRetries limits the number of retries of a message, including retries by other programs. After MaxRetries
	// retries, Requeue parks the message. Default: 10.
	MaxRetries int

	// Unsettled limits the number of unacked messages of this Queue, including the messages that it has prefetched for
	// later calls to Receive. While the number of received messages equals the limit, Receive waits for a call to
	// Delete, Requeue or Park. Maximum: 65535. Default: 100.
	Unsettled int

	// CrashLimit is the number of consumers that a message can terminate before it is parked. Default: 5 on quorum
	// queues of RabbitMQ 4.3 and later, and otherwise no limit, because earlier versions also count each return of a
	// message by Stop. On RabbitMQ 4.0 to 4.2, use a value below 20; docs/interop.md documents the reason.
	CrashLimit int

	// Client configures the connections, for example TLS, and the logger. Default: nil.
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

// Validate reports invalid settings and suggests valid values.
func (c *Config) Validate() error {
	d := c.withDefaults()
	var errs []error
	if d.MaxRetries < 0 {
		errs = append(errs, fmt.Errorf("staking: Config.MaxRetries must not be negative: got %d (0 means %d)", d.MaxRetries, DefaultMaxRetries))
	}
	if d.Unsettled < 0 || d.Unsettled > 65535 {
		errs = append(errs, fmt.Errorf("staking: Config.Unsettled must be 1 to 65535: got %d (0 means %d)", d.Unsettled, DefaultUnsettled))
	}
	return errors.Join(append(errs, d.Design.Validate(), d.Client.Validate())...)
}

// settleTime is the maximum time that Stop waits for the received messages to be settled. After this time, Stop
// requeues the messages whose receipts were not used.
const settleTime = 250 * time.Millisecond

// Queue is one of the staking queues, with the operations of the original client. A received message remains unacked
// until the receiver calls Delete, Requeue or Park. All methods are safe for concurrent use.
//
//	q, err := staking.Open(ctx, url, "active_staking_queue", nil)
//	err = q.Send(ctx, body)
//	m, err := q.Receive(ctx)
//	err = q.Delete(m.Receipt)         // processed
//	err = q.Requeue(m.Receipt, cause) // or: retry after the delay
//
// A Queue contains a reprise.Worker whose handler waits for the result from the receiver. A requeued message therefore
// keeps all properties, and its headers contain the reason. After MaxRetries retries, the message is parked. The worker
// acknowledges the original after the broker has confirmed the copy. After a connection failure, the Queue reconnects,
// and Receive continues to wait.
type Queue struct {
	name     string
	client   *reprise.Client
	worker   *reprise.Worker
	receipts *receipts
	received chan Received // unbuffered, so that the worker can requeue a message until Receive returns it

	start sync.Once
	begun atomic.Bool
	ended chan struct{} // closed when the worker has stopped, or when Stop prevents its start
	err   error         // result of the worker; read it after ended is closed
}

// Received is the result of Receive. It contains the body, the properties and the headers of the first publication, and
// the recorded errors of earlier attempts.
type Received struct {
	*reprise.Delivery

	// Receipt identifies the message for Delete, Requeue and Park. It can be used only once, with the Queue that
	// received the message, and only while the connection and the channel that received the message are open.
	Receipt string

	// RetryAttempts is the number of retries so far, including retries by other programs.
	RetryAttempts int
}

// Open connects to the broker at url, which has the form that reprise.Dial accepts, and declares the queue called name
// and its delay and failed queues. The context limits the connection attempt. If a queue exists with different
// arguments, Open returns a *reprise.DeclareError. Consumption starts with the first call to Receive.
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

// Send publishes a message and returns when the broker has stored it. It returns the errors of reprise.Client.Publish.
func (q *Queue) Send(ctx context.Context, body []byte) error {
	return q.client.Publish(ctx, message(q.name, body))
}

// Receive returns the next message. If the queue is empty or the connection is lost, Receive waits. If ctx is done,
// Receive returns its cause; after Stop, it returns ErrStopped. A message that has terminated the processes or
// connections of two receivers is delivered alone: Receive waits until all other messages are settled, and does not
// return another message until this message is settled.
func (q *Queue) Receive(ctx context.Context) (Received, error) {
	q.start.Do(func() {
		q.begun.Store(true)
		go func() { // Stop waits for this goroutine
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

// Delete acknowledges a received message. If Delete returns an error, such as ErrStale, it has not deleted the message.
// If the connection fails during Delete, the broker can redeliver the message, as with every AMQP client.
func (q *Queue) Delete(receipt string) error { return q.settle("delete", receipt, nil) }

// Requeue returns a received message to the queue. The reason is optional. After the delay, the broker delivers the
// message again, with a higher count. If the message has already been retried MaxRetries times, Requeue parks it.
//
// Requeue does not wait for the broker. The Queue publishes a copy, if necessary several times, and acknowledges the
// original after the broker has confirmed the copy. If the connection fails before the confirm, the broker redelivers
// the original.
func (q *Queue) Requeue(receipt string, reason error) error {
	return q.settle("requeue", receipt, cmp.Or(reason, errRequeued))
}

// Park moves a received message to the failed queue, with the given reason. Use it for messages that a retry cannot
// process.
func (q *Queue) Park(receipt string, reason error) error {
	return q.settle("park", receipt, reprise.Park(reason))
}

var errRequeued = errors.New("requeued")

func (q *Queue) settle(verb, receipt string, verdict error) error {
	if err := q.receipts.settle(receipt, verdict); err != nil {
		return fmt.Errorf("staking: %s: cannot %s %q: %w", q.name, verb, receipt, err)
	}
	return nil
}

// Ping returns nil if the broker responds and the Queue can send messages and, after the first call to Receive, also
// consume. A Queue recovers from connection failures automatically. The context limits the duration of Ping.
func (q *Queue) Ping(ctx context.Context) error {
	if q.begun.Load() {
		return q.worker.Healthy(ctx)
	}
	return q.client.Healthy(ctx)
}

// Stop unblocks Receive, settles the messages for which Delete, Requeue or Park was called, returns all other messages
// to the queue, and closes the connections. The context limits the duration of Stop. After Stop, the receipts of the
// returned messages are invalid (ErrStopped). Stop can be called repeatedly.
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

// handle waits until the receiver settles the message, the channel of the message is closed, or ctx is done. If the
// channel is closed, handle returns nil, and the acknowledgement on the closed channel has no effect.
func (q *Queue) handle(ctx context.Context, m *reprise.Delivery) error {
	receipt, held := q.receipts.issue()
	select {
	case q.received <- Received{Delivery: m, Receipt: receipt, RetryAttempts: m.Attempt - 1}:
	case <-held:
	case <-ctx.Done():
	}
	select {
	case verdict := <-held:
		return verdict
	case <-ctx.Done():
		if q.receipts.withdraw(receipt) {
			return context.Cause(ctx) // the worker returns the message to the queue
		}
		return <-held // the receiver settled the message before the call to withdraw
	}
}

// observer returns an Observer that invalidates the receipts of a channel when the channel is closed.
func (q *Queue) observer(next reprise.Observer) reprise.Observer {
	return reprise.ObserverFunc(func(e reprise.Event) {
		_, closed := errors.AsType[*amqp.Error](e.Err)
		if e.Kind == reprise.EventDisconnected && e.Connection == "consume" ||
			e.Kind == reprise.EventInterrupted && closed { // a consumer cancellation does not close the channel
			q.receipts.lose()
		}
		if next != nil {
			next.Observe(e)
		}
	})
}
