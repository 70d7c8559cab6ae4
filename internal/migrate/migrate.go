// Package migrate changes the arguments of a queue, which RabbitMQ refuses (406), without losing messages: it declares
// another queue, moves the bindings and the messages to it, and deletes the old queue.
//
// One transfer moves a queue to another: see transfer. A migration to a new name is one transfer. A migration that keeps
// the name transfers the queue to a holding queue, declares the queue again, and transfers the holding queue to it.
//
// The state is on the broker, so that a migration that was interrupted anywhere continues in the next run. An exchange
// records the wanted queue, and its bindings are the journal: see journal. The existing queues and bindings show the
// rest. A lost connection ends the run.
//
// Guarantees: a binding of the new queue precedes the removal of the old one, a confirm precedes an acknowledgement, and a
// queue is deleted only if it has neither messages nor consumers. Therefore an interruption can only duplicate messages,
// and Result.Duplicates is an upper bound of their number.
package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/inner"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/topology"
)

// Change is the change of a queue.
type Change struct {
	Queue string
	To    string         // the new name. Default: the name is kept
	Set   topology.Table // arguments to set
	Unset []string       // arguments to remove

	// Ordered keeps the order of the messages. With Disconnect, all messages are moved while all other programs are
	// disconnected. Otherwise To is required, and no message is moved: the consumers have to empty the queue.
	Ordered bool

	// Disconnect closes all other connections of the virtual host, and refuses new ones, while the queue does not exist.
	Disconnect bool

	// Delete states that no program publishes to the queue by its name, or does so any more, so that it can be deleted. It is
	// required, unless Disconnect is set or the broker reports the exchange of each message (rates_mode detailed).
	Delete bool

	// Undo moves the bindings and messages back, if the old queue of a migration that keeps the name still exists. Otherwise the
	// migration continues.
	Undo bool
}

func (c Change) keepsName() bool { return c.To == "" || c.To == c.Queue }

// Config configures Run. Client, API and Change are required.
type Config struct {
	Client *reprise.Client
	Name   string // reprise.Config.Name of the client. Only its connections have this name.
	API    mgmtapi.API
	Change Change

	// Settle is the minimum time in which RabbitMQ collects its statistics once. If a broker needs longer, the run waits longer.
	// The management API has to report for twice this time that a queue is unused before the queue is deleted. Default: 6 s for
	// RabbitMQ, none for the embedded broker.
	Settle time.Duration

	// Batch is the maximum number of messages that are published and not acknowledged yet, so that an interruption duplicates
	// at most as many. Default: 256.
	Batch int

	// Step is called when a step begins, or has to wait. Default: none.
	Step func(text string)

	// Progress is called with the number of moved messages, and of messages that are left in the queue. Default: none.
	Progress func(moved, left int64)
}

// Result is the result of Run.
type Result struct {
	Begun      bool  // otherwise nothing has changed
	Moved      int64 // number of messages that this run has moved. A message is moved twice if the name is kept
	Duplicates int64 // maximum number of duplicates since the migration began

	// Uncounted reports that programs consumed from the new queue while both queues had the bindings, so that Duplicates
	// does not include the messages that they took.
	Uncounted bool

	Paused time.Duration // time for which other programs were disconnected
}

// Run migrates a queue, or continues a migration that was interrupted. It returns when the old queue is deleted. While
// programs consume from the old queue, it waits.
func Run(ctx context.Context, cfg Config) (result Result, err error) {
	in := inner.Of(cfg.Client)
	cfg.Batch = cmp.Or(cfg.Batch, DefaultBatch)
	conn, err := in.Consuming.Get(ctx)
	if err != nil {
		return Result{}, err
	}
	if cfg.Settle == 0 && conn.IsRabbitMQ() {
		cfg.Settle = DefaultSettle
	}
	r := &run{cfg: cfg, broker: broker{cfg.API}, in: in, conn: conn, user: in.Consuming.User()}
	defer r.close()
	if err := r.lock(ctx, cfg.Change.Queue); err != nil {
		return Result{}, err
	}
	if done, err := r.begin(ctx); done || err != nil {
		return r.result, err
	}
	err = r.all(ctx)
	r.result.Duplicates = r.journal.duplicates()
	return r.result, errors.Join(err, r.resume())
}

// run is a running Run.
type run struct {
	cfg     Config
	broker  broker
	in      inner.Client
	conn    *amqpconn.Conn
	control *amqpconn.Channel // nil after the broker has closed it
	user    string            // of the connection
	locked  bool

	record  record
	journal journal
	paused  time.Time
	result  Result
	byName  int64 // number of moved messages that were published by the name of the queue
}

// Names of the objects of a migration.
const (
	holding      = ".migrating"         // suffix of the queue that holds the messages while the name is kept
	checking     = ".migrating.check"   // suffix of the queue that checks the wanted arguments
	RecordPrefix = "reprise.migration." // prefix of the exchange with the record and of the lock
	movePrefix   = "reprise.move."      // prefix of the exchange through which messages move
	maxName      = 230
)

// DefaultBatch is the default of Config.Batch.
const DefaultBatch = 256

// DefaultSettle is the time in which RabbitMQ with default settings has collected its statistics, every 5 s.
const DefaultSettle = 6 * time.Second

func (r *run) step(format string, args ...any) {
	if r.cfg.Step != nil {
		r.cfg.Step(fmt.Sprintf(format, args...))
	}
}

// do sends requests on the control channel.
func (r *run) do(ctx context.Context, requests ...func(*amqpconn.Channel) error) error {
	for _, request := range requests {
		if r.control == nil || r.control.IsClosed() {
			ch, err := r.conn.Open(ctx)
			if err != nil {
				return err
			}
			r.control = ch
		}
		if err := request(r.control); err != nil {
			return err
		}
	}
	return nil
}

// close removes the lock, which otherwise exists until the broker has closed the connection.
func (r *run) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if r.locked {
		_ = r.do(ctx, func(ch *amqpconn.Channel) error { return ch.DeleteQueue(ctx, RecordPrefix+r.cfg.Change.Queue) })
	}
	if r.control != nil {
		r.control.CloseSoon(context.Background(), time.Second)
	}
}

// ErrRunning is returned if another process migrates the queue, or if the broker has not yet noticed its end.
var ErrRunning = errors.New("another process migrates this queue, or its connection is still open (try again)")

// lock makes sure that no other process migrates the queue. The lock ends with the connection.
func (r *run) lock(ctx context.Context, queue string) error {
	if len(queue) > maxName {
		return fmt.Errorf("name of the queue must have at most %d bytes: got %d", maxName, len(queue))
	}
	lock := topology.Queue{Name: RecordPrefix + queue, Transient: true, Exclusive: true}
	err := r.do(ctx, func(ch *amqpconn.Channel) error { return ch.DeclareQueue(ctx, lock, false) })
	if refusal, ok := amqpconn.RefusedChannel(err); ok && refusal.Code == amqpconn.ResourceLocked {
		return ErrRunning
	}
	if err != nil {
		return err
	}
	r.locked = true
	found, err := r.broker.queue(ctx, lock.Name)
	if err == nil && !found.Found {
		err = errors.New("the management API and the URL belong to different brokers or virtual hosts")
	}
	return err
}

// begin reads the record, or begins a migration: it checks as far as possible that no later step will be refused, and
// writes the record. done reports whether the queue already has the wanted arguments.
func (r *run) begin(ctx context.Context) (done bool, err error) {
	found, err := r.read(ctx)
	if err != nil || found {
		return false, err
	}
	if r.cfg.Change.Undo {
		return true, fmt.Errorf("no migration of queue %q was interrupted", r.cfg.Change.Queue)
	}
	p, err := NewPlan(ctx, r.cfg.API, r.cfg.Change)
	if err == nil {
		err = p.Err()
	}
	if err != nil || p.Done {
		return true, err
	}
	r.record = p.record
	if err := r.check(ctx, p); err != nil {
		return false, err
	}
	r.result.Begun = true
	return false, r.do(ctx,
		func(ch *amqpconn.Channel) error { return ch.DeclareExchange(ctx, r.record.exchange()) },
		func(ch *amqpconn.Channel) error { return ch.DeclareExchange(ctx, r.record.mover()) },
	)
}

// read reads the record and the journal of an interrupted migration.
func (r *run) read(ctx context.Context) (found bool, err error) {
	r.record, found, err = r.broker.record(ctx, r.cfg.Change.Queue)
	if err != nil || !found {
		return false, err
	}
	if err := r.record.conflict(r.cfg.Change); err != nil {
		return false, err
	}
	r.record.Ordered = r.record.Ordered || r.cfg.Change.Ordered
	r.record.Disconnect = r.record.Disconnect || r.cfg.Change.Disconnect
	r.record.Delete = r.record.Delete || r.cfg.Change.Delete
	// The record precedes this exchange, and the bindings of this exchange are the journal.
	err = r.do(ctx, func(ch *amqpconn.Channel) error { return ch.DeclareExchange(ctx, r.record.mover()) })
	if err != nil {
		return false, err
	}
	r.journal, err = r.broker.journal(ctx, r.record)
	r.result.Begun = true
	return true, err
}

// check requests what later steps request, without an effect, so that a user without permissions changes nothing.
func (r *run) check(ctx context.Context, p *Plan) error {
	r.step("check permissions and arguments")
	bindings := p.bindings
	old := p.old.declaration()
	err := r.do(ctx, func(ch *amqpconn.Channel) error { return ch.DeclareQueue(ctx, old, false) })
	for _, b := range bindings {
		if err == nil {
			err = r.do(ctx, func(ch *amqpconn.Channel) error { return ch.Bind(ctx, b) })
		}
	}
	if err != nil {
		return fmt.Errorf("cannot declare or bind queue %q as it is: %w", old.Name, err)
	}
	for _, probe := range []topology.Queue{r.record.wanted(), r.record.hold()} {
		probe.Name = r.record.Queue + checking
		err = r.do(ctx,
			func(ch *amqpconn.Channel) error { return ch.DeleteQueue(ctx, probe.Name) }, // of an interrupted run
			func(ch *amqpconn.Channel) error { return ch.DeclareQueue(ctx, probe, false) },
			func(ch *amqpconn.Channel) error { return ch.DeleteQueue(ctx, probe.Name) },
		)
		if err != nil {
			return fmt.Errorf("cannot declare a queue with the wanted arguments: %w", err)
		}
	}
	if r.record.To != r.record.Queue {
		wanted := r.record.wanted()
		if err := r.do(ctx, func(ch *amqpconn.Channel) error { return ch.DeclareQueue(ctx, wanted, false) }); err != nil {
			return fmt.Errorf("cannot declare queue %q: %w", wanted.Name, err)
		}
	}
	return nil
}

// all performs all remaining steps.
func (r *run) all(ctx context.Context) error {
	wanted := r.record.wanted()
	if r.record.Ordered && r.record.Disconnect {
		if err := r.pause(ctx, func() error { return nil }); err != nil {
			return err
		}
	}
	if r.record.To != r.record.Queue {
		if err := r.transfer(ctx, r.record.Queue, wanted); err != nil {
			return err
		}
		return r.end(ctx)
	}
	hold := r.record.hold()
	old, err := r.broker.queue(ctx, r.record.Queue)
	if err != nil {
		return err
	}
	switch {
	case !old.Found || old.equals(wanted):
	case r.cfg.Change.Undo:
		wanted = old.declaration()
	default:
		if err := r.transfer(ctx, r.record.Queue, hold); err != nil {
			return err
		}
	}
	r.step("declare %s", wanted.Name)
	if err := r.do(ctx, func(ch *amqpconn.Channel) error { return ch.DeclareQueue(ctx, wanted, false) }); err != nil {
		return fmt.Errorf("cannot declare queue %q: %w", wanted.Name, err)
	}
	if !r.record.Ordered {
		if err := r.resume(); err != nil {
			return err
		}
	}
	held, err := r.broker.queue(ctx, hold.Name)
	if err != nil {
		return err
	}
	if held.Found {
		if err := r.transfer(ctx, hold.Name, wanted); err != nil {
			return err
		}
	}
	return r.end(ctx)
}

// end deletes the exchanges, the record last. The journal of the record is necessary to resume.
func (r *run) end(ctx context.Context) error {
	if err := r.resume(); err != nil {
		return err
	}
	return r.do(ctx,
		func(ch *amqpconn.Channel) error { return ch.DeleteExchange(ctx, r.record.mover().Name) },
		func(ch *amqpconn.Channel) error { return ch.DeleteExchange(ctx, r.record.exchange().Name) },
	)
}

// describe returns arguments as text.
func describe(args topology.Table) string {
	if len(args) == 0 {
		return "no arguments"
	}
	var all []string
	for k, v := range args {
		all = append(all, fmt.Sprintf("%s=%v", k, v))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// kindOf returns the type of a queue with these arguments.
func kindOf(args topology.Table) string {
	kind, _ := args[queueType].(string)
	return cmp.Or(kind, "classic")
}

const queueType = "x-queue-type"
