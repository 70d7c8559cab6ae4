package failed

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
)

// Defaults of IngestConfig.
const (
	defaultBatch       = 100
	defaultIngestLease = 5 * time.Second
)

// IngestConfig describes an Ingest. Queues is required.
type IngestConfig struct {
	// Queues are the failed queues to empty into the archive. One that does not
	// exist yet is waited for; none is declared.
	Queues []string

	// Origin names the work queue that a message failed in, by what is known for sure,
	// such as which work queue a failed queue belongs to. It decides, since whatever
	// stands on a message can have been written by its publisher. "" leaves it to what
	// is there, in this order: the broker's x-death, where that is no expiry; the header
	// x-reprise-queue; the rest of x-death; the name of the failed queue without
	// ".failed". The failed queue itself says that it is not known, and then a replay
	// wants to be told where to: Plan.To. The message is as delivered. Default: none.
	Origin func(*reprise.Message) string

	// Batch is how many messages of a queue are taken at a time, and stored in one
	// transaction at the most. They are in memory meanwhile, with their bodies.
	// A queue has at most 32 messages in memory, whatever the Batch. Default 100.
	Batch int

	// Lease is how long a queue is left alone whose process does not say that it is
	// alive: so long it is not emptied after a process was killed. It says so three times
	// in a Lease. One that is cut off by something else stores nothing that another
	// has meanwhile, so that the Lease need not allow for that. At least 1 s. Default 5 s.
	Lease time.Duration

	// Logger receives the events listed at Ingest. Default: none.
	Logger *slog.Logger
}

func (c IngestConfig) withDefaults() IngestConfig {
	c.Batch = cmp.Or(c.Batch, defaultBatch)
	c.Lease = cmp.Or(c.Lease, defaultIngestLease)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate reports what is missing or contradictory and what to write instead.
func (c IngestConfig) Validate() error {
	var errs []error
	if len(c.Queues) == 0 {
		errs = append(errs, errors.New("failed: IngestConfig.Queues is empty: name the failed queues, such as orders.failed"))
	}
	seen := map[string]bool{}
	for _, q := range c.Queues {
		switch {
		case q == "":
			errs = append(errs, errors.New("failed: IngestConfig.Queues has an empty name: leave it out"))
		case seen[q]:
			errs = append(errs, fmt.Errorf("failed: IngestConfig.Queues has %q twice: name it once", q))
		}
		seen[q] = true
	}
	if c.Batch < 0 || c.Batch > 65535 {
		errs = append(errs, fmt.Errorf("failed: IngestConfig.Batch %d: use 1 to 65535, or 0 for %d", c.Batch, defaultBatch))
	}
	if c.Lease != 0 && c.Lease < time.Second {
		errs = append(errs, fmt.Errorf("failed: IngestConfig.Lease %s: use at least 1s, or 0 for %s", c.Lease, defaultIngestLease))
	}
	return errors.Join(errs...)
}

// Ingest empties failed queues into an Archive. A message is stored first and
// acknowledged then. While the store is down, or is no longer the one that was opened
// (ErrUnavailable), messages stay unacknowledged, and it is tried again; a message that the store does not take, while it takes others, stays in
// its queue, unacknowledged, and is tried again each minute.
//
//	failed queue ─► Add ─► ack ─► Settled
//	                 │      └ lost: delivered again, redelivered: the archive knows it
//	                 └ fails: again, later
//
// A crash or a lost connection at any point loses nothing, and nothing is stored
// twice: a message that is delivered again is one that the archive has. One case is
// left: where the connection is lost, or the process killed, so that nobody knows whether
// the broker has the ack of a message, and another one that does not differ from it
// in a single byte, its id included, is delivered again, that is taken for the first. And
// a broker that dies before an ack is on its disk forgets it: what it delivers again then
// is stored twice. See docs/guarantees.md.
//
// Any number of processes may empty the same queues into one archive: each queue is one's
// at a time (claimQueue), and the others wait, consuming nothing. When that one has ended,
// or has not been heard of for the Lease, another takes over; what the first one had not
// stored then it cannot store any more, and gives back. Two archives are not to empty
// one queue: each would have a part of it.
//
// A broker that loses patience with what is unacknowledged (consumer_timeout, 30
// min) closes the channel and delivers again. A quorum queue counts that, so a failed
// queue that Reprise did not declare should have no x-delivery-limit.
//
// Its Logger receives:
//
//	archive unavailable  error, next_try, held       (Warn)
//	archive available    held                        (Info)
//	cannot be archived   queue, message_id, error    (Error; the message stays in the queue)
//	queue taken          queue                       (Info: another process empties it, and this one waits)
type Ingest struct {
	store  keeper
	client *reprise.Client
	cfg    IngestConfig

	mu     sync.Mutex
	failed map[string]error // by queue, why its messages could not be stored lately
}

// NewIngest checks cfg and returns an Ingest for Run to start. It does not talk to the
// broker or to the database.
func NewIngest(c *reprise.Client, a *Archive, cfg IngestConfig) (*Ingest, error) {
	if a == nil {
		return nil, errors.New("failed: NewIngest needs an Archive: Open returns one")
	}
	return newIngest(c, a, cfg)
}

func newIngest(c *reprise.Client, a keeper, cfg IngestConfig) (*Ingest, error) {
	if c == nil {
		return nil, errors.New("failed: NewIngest needs a Client: reprise.Dial returns one")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.Queues = slices.Clone(cfg.Queues)
	in := &Ingest{store: a, client: c, cfg: cfg, failed: map[string]error{}}
	for _, queue := range cfg.Queues {
		if _, err := in.worker(queue, "", nil); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// worker takes messages out of a queue, which an owner has claimed, for a batcher.
func (in *Ingest) worker(queue, owner string, b *batcher) (*reprise.Worker, error) {
	return reprise.NewWorker(in.client, reprise.WorkerConfig{
		Queue: queue,
		Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Message) error {
			a := take(m, in.cfg.Origin)
			a.Owner = owner
			return b.add(ctx, m, a)
		}),
		AsDelivered:  true,
		Acked:        func(m *reprise.Message, err error) { b.acked(m, err) },
		Strategy:     keep(),
		Concurrency:  min(in.cfg.Batch, maxTaken),
		Prefetch:     min(in.cfg.Batch, maxTaken),
		CrashLimit:   -1,
		DrainTimeout: drainTimeout,
	})
}

// maxTaken is the largest Prefetch with which acknowledgements are certain: see
// reprise.WorkerConfig.Acked.
const maxTaken = 32

// drainTimeout is for what is on its way into the store when Run is to end.
const drainTimeout = 5 * time.Second

// Run empties the queues until ctx ends. Then it stores what it has taken and
// acknowledges it; what cannot be stored within 5 s goes back to its queue. It can be
// called once. The errors are those of reprise.Worker.Run.
func (in *Ingest) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, queue := range in.cfg.Queues {
		go func() { ended <- in.empty(running, queue) }()
	}
	var errs []error
	for range in.cfg.Queues {
		err := <-ended
		cancel() // one that has ended by itself ends all: it would not be seen
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// empty empties a queue, whenever it is not another's.
func (in *Ingest) empty(ctx context.Context, queue string) error {
	// Each time that the queue is had, it is by another owner: what was taken out of it
	// before can no longer be stored then.
	owner, waits := rand.Text(), false
	for failures := 0; ctx.Err() == nil; {
		mine, err := in.store.claimQueue(ctx, queue, owner, in.cfg.Lease)
		delay := in.cfg.Lease / 3
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			failures++
			delay = storeBackoff.Delay(failures)
			in.note(queue, err)
			in.cfg.Logger.Warn("archive unavailable", "error", err, "next_try", delay, "held", 0)
		case mine:
			failures, waits = 0, false
			in.note(queue, nil)
			h := hold{lease: in.cfg.Lease, fenced: true, claim: func(ctx context.Context) (bool, error) {
				return in.store.renewQueue(ctx, queue, owner, in.cfg.Lease)
			}}
			err := h.run(ctx, func(ctx context.Context) error { return in.work(ctx, queue, owner) })
			in.release(ctx, queue, owner)
			owner = rand.Text()
			if !errors.Is(err, errTaken) {
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
		_ = sleep(ctx, delay)
	}
	return nil
}

// work empties a queue until ctx ends: errTaken, if that is since it is another's.
func (in *Ingest) work(ctx context.Context, queue, owner string) error {
	b := newBatcher(in.store, in.cfg.Batch, in.cfg.Logger)
	b.tell = func(err error) { in.note(queue, err) }
	stop := b.start(context.WithoutCancel(ctx))
	defer stop()
	w, err := in.worker(queue, owner, b)
	if err != nil {
		return err
	}
	err = w.Run(ctx)
	if context.Cause(ctx) == errTaken {
		return errors.Join(errTaken, err)
	}
	return err
}

// Healthy returns nil while messages of the failed queues are stored as they arrive. While
// they cannot be stored it returns why, and they stay in their queues. It asks nobody: see
// Archive.Healthy for an archive to which nothing arrives.
func (in *Ingest) Healthy() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, queue := range slices.Sorted(maps.Keys(in.failed)) {
		return fmt.Errorf("failed: messages of %s cannot be archived: %w", queue, in.failed[queue])
	}
	return nil
}

// note notes whether messages of a queue could be stored.
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
	longer, cancel := grace(ctx, noteGrace)
	defer cancel()
	if err := in.store.releaseQueue(longer, queue, owner); err != nil {
		in.cfg.Logger.Warn("archive unavailable", "error", err, "next_try", time.Duration(0), "held", 0)
	}
}
