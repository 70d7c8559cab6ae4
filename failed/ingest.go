package failed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/reprisemq/reprise"
)

// DefaultBatch is the default of IngestConfig.Batch.
const DefaultBatch = 100

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
	// Default 100.
	Batch int

	// Logger receives the events listed at Ingest. Default: none.
	Logger *slog.Logger
}

func (c IngestConfig) withDefaults() IngestConfig {
	if c.Batch == 0 {
		c.Batch = DefaultBatch
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
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
		errs = append(errs, fmt.Errorf("failed: IngestConfig.Batch %d: use 1 to 65535, or 0 for %d", c.Batch, DefaultBatch))
	}
	return errors.Join(errs...)
}

// Ingest empties failed queues into an Archive. A message is stored first and
// acknowledged then. While the store is down messages stay unacknowledged, and it is
// tried again; a message that the store does not take, while it takes others, stays in
// its queue, unacknowledged, and is tried again each minute.
//
//	failed queue ─► Add ─► ack ─► Settled
//	                 │      └ lost: delivered again, redelivered: the archive knows it
//	                 └ fails: again, later
//
// A crash or a lost connection at any point loses nothing, and nothing is stored
// twice: a message that is delivered again is one that the archive has. Two cases are
// left. Where several processes empty one queue, and one of them loses its
// connection while its store is down, the messages it holds may be stored twice. And
// where the connection is lost, or the process killed, so that nobody knows whether
// the broker has the ack of a message, and another one that does not differ from it
// in a single byte, its id included, is delivered again, that is taken for the first.
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
type Ingest struct {
	client  *reprise.Client
	cfg     IngestConfig
	batcher *batcher
	workers []*reprise.Worker
}

// NewIngest checks cfg and returns an Ingest for Run to start. It does not talk to the
// broker or to the database.
func NewIngest(a *Archive, c *reprise.Client, cfg IngestConfig) (*Ingest, error) {
	if a == nil {
		return nil, errors.New("failed: NewIngest needs an Archive: Open returns one")
	}
	return newIngest(a, c, cfg)
}

func newIngest(a keeper, c *reprise.Client, cfg IngestConfig) (*Ingest, error) {
	if c == nil {
		return nil, errors.New("failed: NewIngest needs a Client: reprise.Dial returns one")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.Queues = slices.Clone(cfg.Queues)
	in := &Ingest{client: c, cfg: cfg, batcher: newBatcher(a, cfg.Batch, cfg.Logger)}
	for _, queue := range cfg.Queues {
		w, err := reprise.NewWorker(c, reprise.WorkerConfig{
			Queue:        queue,
			Handler:      reprise.HandlerFunc(in.keep),
			AsDelivered:  true,
			Acked:        in.batcher.acked,
			Strategy:     keep(),
			Concurrency:  cfg.Batch,
			Prefetch:     cfg.Batch,
			CrashLimit:   -1,
			DrainTimeout: drainTimeout,
		})
		if err != nil {
			return nil, err
		}
		in.workers = append(in.workers, w)
	}
	return in, nil
}

// drainTimeout is for what is on its way into the store when Run is to end.
const drainTimeout = 5 * time.Second

// Run empties the queues until ctx ends. Then it stores what it has taken and
// acknowledges it; what cannot be stored within 5 s goes back to its queue. It can be
// called once. The errors are those of reprise.Worker.Run.
func (in *Ingest) Run(ctx context.Context) error {
	stop := in.batcher.start(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, len(in.workers))
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, w := range in.workers {
		go func() { ended <- w.Run(running) }()
	}
	var errs []error
	for range in.workers {
		err := <-ended
		cancel() // one that has ended by itself ends all: it would not be seen
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// keep is the handler: it returns when the message is in the archive.
func (in *Ingest) keep(ctx context.Context, m *reprise.Message) error {
	return in.batcher.add(ctx, m, take(m, in.cfg.Origin))
}
