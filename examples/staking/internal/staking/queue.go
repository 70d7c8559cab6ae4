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

// Config configures a Queue. The zero value and a nil *Config select the defaults.
type Config struct {
	// Design sets the queue type and the retry delay. Default: a quorum queue, 5 s.
	Design preset.Staking

	// MaxRetries limits the number of retries of a message, including retries by other programs. After that number, Requeue parks
	// the message. Default: 10.
	MaxRetries int

	// Unsettled limits the number of messages that this Queue holds, including the messages that it has prefetched for the next
	// Receive. When the limit is reached, Receive waits for a Delete, Requeue or Park. Maximum: 65535. Default: 100.
	Unsettled int

	// CrashLimit limits the number of consumers that a message can terminate before it is parked. Default: 5 on quorum
	// queues of RabbitMQ 4.3 and later. Otherwise there is no limit, because earlier versions also count the messages
	// that Stop returns to the queue. On RabbitMQ 4.0 to 4.2, use a value below 20, because of the behavior of the wait
	// queue that preset.Staking documents.
	CrashLimit int

	// Client configures the connections, for example the logger and TLS. Default: nil.
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

// Validate returns an error that lists the invalid settings with their valid values.
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

// settleTime limits the time that Stop waits for messages to be settled after Delete, Requeue or Park. Stop does not wait longer
// for unused receipts.
const settleTime = 250 * time.Millisecond

// Queue is one of the staking queues, with the operations of the original client. The receiver holds a received message until it
// calls Delete, Requeue or Park. All methods are safe for concurrent use.
//
//	q, err := staking.Open(ctx, url, preset.StakingActiveQueue, nil)
//	err = q.Send(ctx, body)
//	m, err := q.Receive(ctx)
//	err = q.Delete(m.Receipt)         // processed
//	err = q.Requeue(m.Receipt, cause) // or: retry after the delay
//
// A Queue is a reprise.Worker whose handler waits for the result from the receiver. A requeued message therefore keeps all
// properties and contains the reason. After MaxRetries retries, the message is parked. The worker acknowledges the original after
// the broker has confirmed the copy. After a connection failure, the Queue reconnects and Receive continues.
type Queue struct {
	name     string
	client   *reprise.Client
	worker   *reprise.Worker
	receipts *receipts
	received chan Received // unbuffered, so that a message can be requeued until it is received

	start sync.Once
	begun atomic.Bool
	ended chan struct{} // closed when the worker has stopped, or cannot start
	err   error         // result of the worker; read it after ended is closed
}

// Received is the result of Receive. It contains the body, the properties and the headers as first published, and the known errors
// of earlier attempts.
type Received struct {
	*reprise.Message

	// Receipt identifies the message for Delete, Requeue and Park. It can be used once, and only with the Queue and the connection
	// that received the message.
	Receipt string

	// RetryAttempts is the number of retries so far, including retries by other programs.
	RetryAttempts int
}

// Open connects to the broker at url, declares the queue and its related queues, and returns. The url has the form that
// reprise.Dial accepts. ctx limits the connection attempt. If the queue exists with different arguments, Open returns a
// *reprise.DeclareError. Consumption starts with the first call to Receive.
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

// Receive returns the next message. If the queue is empty or the connection is lost, Receive waits until ctx is done
// (and returns its cause) or Stop is called (ErrStopped). A message that has terminated the processes or connections of
// two receivers is delivered alone, after all other messages are settled and before the next message.
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

// Delete acknowledges a received message. If Delete returns an error, such as ErrStale, it has not deleted the message. As with
// every AMQP client, if the connection fails during Delete, the broker can redeliver the message.
func (q *Queue) Delete(receipt string) error { return q.settle("delete", receipt, nil) }

// Requeue returns a received message to the queue with an optional reason. After the delay, the broker delivers the message with a
// higher count. If the message has had MaxRetries retries, Requeue parks it.
//
// Requeue does not wait for the broker. The Queue publishes the copy until it succeeds, and acknowledges the original after the
// broker has confirmed the copy. If the connection fails before the confirm, the broker redelivers the original.
func (q *Queue) Requeue(receipt string, reason error) error {
	return q.settle("requeue", receipt, cmp.Or(reason, errRequeued))
}

// Park moves a received message, which no retry can process, to the failed queue, with the given reason.
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

// Ping returns nil if the broker responds and the Queue can send messages. After the first Receive, Ping also requires that the
// Queue can consume. After a failure, the Queue recovers automatically. ctx limits the duration of Ping.
func (q *Queue) Ping(ctx context.Context) error {
	if q.begun.Load() {
		return q.worker.Healthy(ctx)
	}
	return q.client.Healthy(ctx)
}

// Stop unblocks Receive, settles the messages of completed Delete, Requeue and Park calls, returns the other messages
// to the queue, and closes the connections. ctx limits the duration. After Stop, the receipts of the other messages are
// invalid (ErrStopped). Stop can be called repeatedly.
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

// handle holds a message until the receiver settles it or the channel of the message is closed. In the second case, the result is
// nil, and the acknowledgement on a closed channel has no effect.
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
			return context.Cause(ctx) // return the message to the queue
		}
		return <-held // the receiver settled the message before the withdrawal
	}
}

// observer invalidates the receipts of a channel when the channel is closed.
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
