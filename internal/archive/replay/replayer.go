package replay

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/background"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// policyReplay is the Actor that ends a replay as done or stopped.
const policyReplay failed.Actor = "policy:replay"

// Defaults of Config.
const (
	defaultPoll        = time.Second
	defaultReplayDrain = 15 * time.Second
)

// Config configures a Replayer. The zero value selects the defaults.
type Config struct {
	// Marks contains the marks of workers with a custom design. The Replayer removes the headers that these marks own,
	// in addition to the headers of Reprise and of the presets. Default: none.
	Marks []topology.Marks

	// Routing determines how messages return to their work queues. Default: the Replayer sends messages by the name of
	// their work queue, but not if they were published through an exchange, unless Plan.ByQueueName is set.
	Routing Routing

	// Batch is the maximum number of messages to send before the Replayer records them as sent. After a
	// crash, up to this number of messages are sent a second time. Batches are smaller at a low
	// rate. Default: 100.
	Batch int

	// Poll is the interval at which the Replayer checks for new and cancelled replays, and for messages that failed
	// again. Default: 1 s.
	Poll time.Duration

	// Lease is the time after which another Replayer takes over the replay of a process that does not renew its
	// lease. Minimum: 1 s. Default: 15 s.
	Lease time.Duration

	// DrainTimeout is the maximum time for which Run and Finish wait for publisher confirms after ctx is done or the
	// replay is cancelled. The next Replayer sends unconfirmed messages again. Default: 15 s.
	DrainTimeout time.Duration

	// Logger receives the events listed at Replayer. Default: no logging.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Batch = cmp.Or(c.Batch, background.DefaultBatch)
	c.Poll = cmp.Or(c.Poll, defaultPoll)
	c.Lease = cmp.Or(c.Lease, background.DefaultLease)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, defaultReplayDrain)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Store contains the methods of Archive that a Replayer needs.
type Store interface {
	Running(ctx context.Context) ([]failed.Replay, error)
	Replay(ctx context.Context, id failed.ReplayID) (*failed.Replay, error)
	UnsentOf(ctx context.Context, id failed.ReplayID, n int) ([]*failed.Message, error)
	MarkSent(ctx context.Context, id failed.ReplayID, ids []failed.ID, why store.UnaskedReason, reached string) error
	MarkRefused(ctx context.Context, id failed.ReplayID, refusals []store.Refusal) error
	ClaimReplay(ctx context.Context, id failed.ReplayID, owner string, lease time.Duration) (bool, error)
	ReleaseReplay(ctx context.Context, id failed.ReplayID, owner string) error
	EndReplay(ctx context.Context, id failed.ReplayID, s failed.ReplayState, why string, who failed.Actor) error
	List(ctx context.Context, f failed.Filter, p store.Page) ([]failed.Summary, string, error)
	Get(ctx context.Context, id failed.ID) (*failed.Message, error)
}

// Publisher contains the methods of Client that a Replayer needs. PublishBatch returns nil or a *reprise.BatchError.
type Publisher interface {
	PublishBatch(ctx context.Context, messages []*reprise.Message) error
}

// Replayer executes the replays of an Archive, regardless of the process that began them. It also continues the replays of
// processes that were killed.
//
//	unsent messages ─► published ─► confirmed ─► recorded as sent ─► next batch …
//
// A message goes to the work queue in which it failed, as Routing specifies, or to the Target of its Plan. A worker
// counts the attempts of the message from the beginning, because the Replayer removes the retry headers of Reprise, of
// the presets and of the broker. It removes BCC, moves CC to reprise.HeaderCC, and keeps all other headers, including
// the headers with the destination of the first publish. It adds topology.HeaderReplay, by which the archive recognizes
// the message if it fails again.
//
// The Replayer records messages as sent after the broker has confirmed them. If a crash or a lost connection prevents
// this, up to a batch of messages is sent again, but no message is lost. If the Replayer shuts down or the replay is
// cancelled, the Replayer waits for the confirms (DrainTimeout), records them, and then releases the replay. The
// Replayer sends the messages in the order of their last failures, except that messages that it must send again follow
// the other messages of their batch.
//
// An invalid message does not block other messages. The Replayer records the reason in Message.Refused if
//
//   - the headers do not fit into a frame,
//   - the body is larger than the broker accepts,
//   - the broker refuses the message with PRECONDITION_FAILED,
//   - AMQP cannot represent a value,
//   - the work queue is unknown,
//   - only the name of the queue leads to it, and Plan.ByQueueName is not set, or
//   - Plan.Edit does not change the message, or cannot be applied to it.
//
// If the plan has an Edit, the Replayer sends a message edited or not at all, unless the edit permits otherwise.
//
// If the broker or the database is not available, the Replayer retries. A replay stops, and its unsent messages
// return to state failed, if
//
//   - a message fails again with its previous fingerprint (unless Plan.IgnoreSame), or
//     the canary fails again with any fingerprint;
//   - the first attempt of the canary fails, or, with Plan.Ramp and without Plan.IgnoreSame, the first attempt of any
//     message fails;
//   - the canary is unproven, because it has no outcome in time, see Plan.Canary;
//   - the queue or exchange does not exist, or the user may not publish to it, because the
//     other messages would fail in the same way;
//   - a caller ends it with EndReplay.
//
// The Replayer notices that messages fail again only if an Ingest moves these messages to the same archive.
//
// Messages request a report from their workers (protocol.HeaderOutcome). While Run or Finish runs, the Replayer
// declares the queue for outcomes and moves the reports to the archive, see Outcome. The Replayer sends a message
// without a request if the headers leave no room for it, if the target is not known to route to exactly one queue, or
// while the queue for outcomes cannot be declared. The outcome of such a message is unknown, unless it fails again.
//
// Any number of Replayers in any number of processes may share an archive. One Replayer at a time executes a replay. If
// that Replayer stops, or does not renew its lease within Config.Lease, another Replayer takes over.
//
// Config.Logger receives:
//
//	replay began     replay, messages, sent            (Info)
//	replay ended     replay, state, why, sent, refused (Info)
//	replay waits     replay, error, next_try           (Warn: the database or the broker is not available)
//	message refused  replay, message, error            (Warn: the message cannot be sent)
//	replay does not request outcomes  replay, error    (Warn: cannot declare the queue for outcomes; the replay retries)
//	outcomes wait     error, next_try                  (Warn: the database is not available; without next_try: cannot declare the queue for outcomes)
//	report ignored    queue, message_id, error         (Warn: a message in the queue for outcomes is not a report, or no database accepts it)
//	replay sends by queue name  replay, queue, warning (Warn: see Destination.Warning)
//	cannot read bindings        error, next_try        (Warn: see Routing.Bindings)
type Replayer struct {
	store   Store
	out     Publisher
	cfg     Config
	router  *router
	secrets []failed.Rule // for BulkEdit.SpareSecrets
	owner   string        // identifies the Replayer to the archive
	wake    background.Signal

	archive  *store.Archive                          // of the outcomes; nil if outcomes is nil
	outcomes *background.Collector[protocol.Outcome] // nil: messages do not request outcome reports

	mu     sync.Mutex
	active map[failed.ReplayID]bool
}

// New returns a Replayer. Run or Finish starts it. New does not access the broker or the
// database.
func New(c *reprise.Client, a *store.Archive, cfg Config) *Replayer {
	r := NewFor(c, a, cfg, a.Config().Redact...)
	read := func(m *reprise.Delivery) (protocol.Outcome, bool) { return protocol.ReadOutcome(m.Headers) }
	r.archive, r.outcomes = a, background.NewCollector(c, r.cfg.Logger, a.OutcomeTopology(), "outcomes wait", read, a.NoteOutcomes)
	return r
}

// NewFor is a variant of New for any Publisher and Store. Its messages do not request outcomes. secrets are the rules for
// BulkEdit.SpareSecrets.
func NewFor(c Publisher, a Store, cfg Config, secrets ...failed.Rule) *Replayer {
	cfg = cfg.withDefaults()
	cfg.Marks = slices.Clone(cfg.Marks)
	return &Replayer{store: a, out: c, cfg: cfg, router: newRouter(cfg.Routing, cfg.Logger), owner: rand.Text(), wake: background.NewSignal(), secrets: secrets, active: map[failed.ReplayID]bool{}}
}

// Run executes all replays concurrently until ctx is done. Then it records the messages in flight and returns nil.
func (r *Replayer) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	if r.outcomes != nil {
		running.Go(func() { r.outcomes.Collect(ctx) })
	}
	failures := 0
	for {
		all, err := r.store.Running(ctx)
		delay := r.cfg.Poll
		if err != nil && ctx.Err() == nil {
			failures++
			delay = background.StoreBackoff.Delay(failures)
			r.cfg.Logger.Warn("replay waits", "replay", 0, "error", err, "next_try", delay)
		}
		for _, replay := range all {
			if r.enter(replay.ID) {
				running.Go(func() {
					defer r.leave(replay.ID)
					_, _ = r.execute(ctx, replay.ID) // execute has logged the error
				})
			}
		}
		timer := time.NewTimer(delay)
		select {
		case <-r.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// Wake makes Run check for replays immediately.
func (r *Replayer) Wake() { r.wake.Send() }

// Finish executes one replay and returns its final state. While another Replayer, or Run of this Replayer, executes the
// replay, Finish waits, and continues the replay if that Replayer stops. If ctx is done, it returns an error and the
// last known state of the replay. It returns ErrNotFound if the replay does not exist.
func (r *Replayer) Finish(ctx context.Context, id failed.ReplayID) (*failed.Replay, error) {
	if r.outcomes != nil {
		taking, stop := context.WithCancel(ctx)
		var taker sync.WaitGroup
		taker.Go(func() { r.outcomes.Collect(taking) })
		defer taker.Wait()
		defer stop()
	}
	for {
		err := background.ErrTaken
		replay := &failed.Replay{ID: id}
		if r.enter(id) {
			replay, err = r.execute(ctx, id)
			r.leave(id)
		}
		if !errors.Is(err, background.ErrTaken) {
			return replay, err
		}
		if err := retry.Sleep(ctx, r.cfg.Poll); err != nil {
			return replay, err
		}
	}
}

func (r *Replayer) enter(id failed.ReplayID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active[id] {
		return false
	}
	r.active[id] = true
	return true
}

func (r *Replayer) leave(id failed.ReplayID) {
	r.mu.Lock()
	delete(r.active, id)
	r.mu.Unlock()
}
