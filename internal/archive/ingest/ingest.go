package ingest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/background"
	"github.com/reprisemq/reprise/internal/archive/framework"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/retry"
)

// defaultIngestLease is the default of Config.Lease.
const defaultIngestLease = 5 * time.Second

// Config configures an Ingest. Queues is required.
type Config struct {
	// Queues are the failed queues to archive. If a queue does not exist, the Ingest does not declare it, but waits
	// until the queue exists.
	Queues []string

	// Origin returns the name of the work queue in which a message failed. Derive the name from reliable information,
	// such as the name of the failed queue, because the publisher may have forged any part of the message. If Origin is
	// nil or returns "", the Ingest uses the first existing source: x-death entries with a reason other than "expired";
	// the headers x-reprise-queue and x-first-death-queue; other x-death entries; the name of the failed queue without
	// ".failed". If this yields the failed queue itself, the work queue is not known, and a replay needs Plan.To.
	// Origin receives the message as delivered. Default: nil.
	Origin func(*reprise.Delivery) string

	// Accept returns an error for a message that the Ingest must not take. The Ingest then leaves the message in its queue and stops,
	// and Run returns a *RefusedError. Default: nil, accept all messages.
	Accept func(*reprise.Delivery) error

	// Batch is the maximum number of messages of a queue in one transaction. These messages and their bodies are in
	// memory until they are stored. The Ingest holds at most 32 messages of a queue at a time, even if Batch is larger.
	// Default: 100.
	Batch int

	// Lease is the time after which another process takes over a queue, if the current owner does not renew its lease.
	// If the owner is killed, no process archives the queue until the lease expires. The owner renews the lease three
	// times per Lease. The lease does not have to allow for network partitions, because a disconnected owner cannot
	// store messages after another process has taken over. Minimum: 1 s. Default: 5 s.
	Lease time.Duration

	// Logger receives the events listed at Ingest. Default: none.
	Logger *slog.Logger
}

// RefusedError is returned by Run if Config.Accept returns an error.
type RefusedError struct {
	Queue string
	Err   error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("message of queue %q refused: %v", e.Queue, e.Err)
}

// Unwrap returns the error of Config.Accept.
func (e *RefusedError) Unwrap() error { return e.Err }

func (c Config) withDefaults() Config {
	c.Batch = cmp.Or(c.Batch, background.DefaultBatch)
	c.Lease = cmp.Or(c.Lease, defaultIngestLease)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Ingest moves messages from failed queues to an Archive. It stores a message and then acknowledges it. If the
// database is down, or is not the database that was opened (ErrUnavailable), the messages stay unacked and the Ingest
// tries again. If the archive refuses one message but stores others, that message stays unacked in its queue, and the
// Ingest tries again every minute.
//
//	failed queue ─► store ─► ack ─► record the ack
//	                 │        └ lost: redelivered, and the archive recognizes the message
//	                 └ fails: try again later
//
// A crash or a lost connection does not lose messages and does not store duplicates, because the archive recognizes a
// redelivery. There are two exceptions. First, suppose that the connection is lost or the process is killed before the
// result of an ack is known. If the broker then redelivers a different message with identical bytes, including the
// message ID, the archive mistakes it for the acknowledged message. Second, a broker that fails before it has written
// an ack to disk loses the ack, and redelivers the message. The archive then stores a duplicate. See
// docs/guarantees.md.
//
// Any number of processes can archive the same queues into one archive. One process at a time has the lease of a queue;
// the others wait and do not consume. If that process exits, or does not renew the lease for the duration of Lease,
// another process takes over. The archive then refuses messages from the first process, which requeues them. Do not
// archive one queue into two archives, because each archive would receive a part of the messages.
//
// If a message stays unacked for longer than the acknowledgement timeout (consumer_timeout, by default 30 min), the
// broker closes the channel and redelivers the message. A quorum queue counts these deliveries. Therefore a failed
// queue that Reprise did not declare should have no delivery limit. Since RabbitMQ 4.0, the default limit is 20.
//
// Config.Logger receives:
//
//	archive unavailable  error, next_try, held       (Warn)
//	archive available    held                        (Info)
//	cannot archive message  queue, message_id, error    (Error; the message stays in the queue)
//	queue taken          queue                       (Info: another process has the lease, and this process waits)
type Ingest struct {
	store  Store
	client *reprise.Client
	cfg    Config

	mu     sync.Mutex
	failed map[string]error // the latest error of the archive by queue; no entry while messages can be stored
}

// New returns an Ingest, or an error if a name of a queue is invalid. Call Run to start it. New does not connect to the broker or to the
// database.
func New(c *reprise.Client, a *store.Archive, cfg Config) (*Ingest, error) {
	return NewFor(c, a, cfg)
}

// NewFor is a variant of New for any Store.
func NewFor(c *reprise.Client, a Store, cfg Config) (*Ingest, error) {
	cfg = cfg.withDefaults()
	cfg.Queues = slices.Clone(cfg.Queues)
	in := &Ingest{store: a, client: c, cfg: cfg, failed: map[string]error{}}
	for _, queue := range cfg.Queues {
		if _, err := in.worker(queue, "", nil, nil); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// worker returns a worker that passes the messages of a queue to a batcher. owner is the owner of the lease. refuse stops the
// worker after a message that Config.Accept does not accept.
func (in *Ingest) worker(queue, owner string, b *batcher, refuse func(error)) (*reprise.Worker, error) {
	return reprise.NewWorker(in.client, reprise.WorkerConfig{
		Queue: queue,
		Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
			if in.cfg.Accept != nil {
				if err := in.cfg.Accept(m); err != nil {
					refuse(&RefusedError{queue, err})
					<-ctx.Done() // the worker then requeues the message
					return err
				}
			}
			a := framework.Take(m, in.cfg.Origin)
			a.Owner = owner
			return b.add(ctx, m, a)
		}),
		AsDelivered:  true,
		Acked:        func(m *reprise.Delivery, err error) { b.acked(m, err) },
		Strategy:     background.ReceiveOnly(),
		Concurrency:  min(in.cfg.Batch, maxTaken),
		Prefetch:     min(in.cfg.Batch, maxTaken),
		CrashLimit:   -1,
		DrainTimeout: background.DrainTimeout,
	})
}

// maxTaken is the maximum Prefetch with reliable acknowledgements: see reprise.WorkerConfig.Acked.
const maxTaken = 32

// Run archives the messages of the queues until ctx is done. Then it stores and acknowledges the messages in flight. It
// requeues the messages that it cannot store within 5 s. If the worker of one queue fails, Run stops all workers, and
// returns the errors of reprise.Worker.Run. Run must be called only once.
func (in *Ingest) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, queue := range in.cfg.Queues {
		go func() { ended <- in.ingestQueue(running, queue) }()
	}
	var errs []error
	for range in.cfg.Queues {
		err := <-ended
		cancel() // if one worker stops, all stop; otherwise the failure would stay hidden until Run returns
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// ingestQueue archives the messages of a queue while this process has the lease, until ctx is done.
func (in *Ingest) ingestQueue(ctx context.Context, queue string) error {
	// Each lease has a new owner ID, so that the archive refuses messages of an earlier lease.
	owner, waits := rand.Text(), false
	for failures := 0; ctx.Err() == nil; {
		mine, err := in.store.ClaimQueue(ctx, queue, owner, in.cfg.Lease)
		delay := in.cfg.Lease / 3
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			failures++
			delay = background.StoreBackoff.Delay(failures)
			in.note(queue, err)
			in.cfg.Logger.Warn("archive unavailable", "error", err, "next_try", delay, "held", 0)
		case mine:
			failures, waits = 0, false
			in.note(queue, nil)
			h := background.Lease{Lease: in.cfg.Lease, Fenced: true, Claim: func(ctx context.Context) (bool, error) {
				return in.store.RenewQueue(ctx, queue, owner, in.cfg.Lease)
			}}
			err := h.Run(ctx, func(ctx context.Context) error { return in.ingestWithLease(ctx, queue, owner) })
			in.release(ctx, queue, owner)
			owner = rand.Text()
			if !errors.Is(err, background.ErrTaken) {
				return err
			}
		default:
			failures = 0
			in.note(queue, nil)
			if !waits {
				waits = true
				in.cfg.Logger.Info("queue taken", "queue", queue)
			}
		}
		_ = retry.Sleep(ctx, delay)
	}
	return nil
}

// ingestWithLease archives the messages of a queue until ctx is done. It returns ErrTaken if another process has taken
// the lease.
func (in *Ingest) ingestWithLease(ctx context.Context, queue, owner string) error {
	b := newBatcher(in.store, in.cfg.Batch, in.cfg.Logger)
	b.onAttempt = func(err error) { in.note(queue, err) }
	stop := b.start(context.WithoutCancel(ctx))
	defer stop()
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	w, err := in.worker(queue, owner, b, end)
	if err != nil {
		return err
	}
	err = w.Run(running)
	if refused, ok := errors.AsType[*RefusedError](context.Cause(running)); ok {
		return errors.Join(refused, err)
	}
	if context.Cause(ctx) == background.ErrTaken {
		return errors.Join(background.ErrTaken, err)
	}
	return err
}

// Healthy returns nil while the messages of the failed queues are stored as they arrive. If they cannot be stored, it
// returns the cause; the messages stay in their queues. Healthy does not query the database. To check an archive that
// receives no messages, use Archive.Healthy.
func (in *Ingest) Healthy() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, queue := range slices.Sorted(maps.Keys(in.failed)) {
		return fmt.Errorf("cannot archive messages of queue %q: %w", queue, in.failed[queue])
	}
	return nil
}

// note records the result of the latest attempt to store messages of a queue.
func (in *Ingest) note(queue string, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if err == nil {
		delete(in.failed, queue)
	} else {
		in.failed[queue] = err
	}
}

func (in *Ingest) release(ctx context.Context, queue, owner string) {
	longer, cancel := background.Grace(ctx, background.NoteGrace)
	defer cancel()
	if err := in.store.ReleaseQueue(longer, queue, owner); err != nil {
		in.cfg.Logger.Warn("archive unavailable", "error", err, "next_try", time.Duration(0), "held", 0)
	}
}
