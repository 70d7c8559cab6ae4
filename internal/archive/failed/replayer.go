package failed

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// policyReplay is the Actor that ends a replay as done or stopped.
const policyReplay Actor = "policy:replay"

// Defaults of ReplayerConfig.
const (
	defaultPoll        = time.Second
	defaultLease       = 15 * time.Second
	defaultReplayDrain = 15 * time.Second
)

// ReplayerConfig configures a Replayer. The zero value selects the defaults.
type ReplayerConfig struct {
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

func (c ReplayerConfig) withDefaults() ReplayerConfig {
	c.Batch = cmp.Or(c.Batch, defaultBatch)
	c.Poll = cmp.Or(c.Poll, defaultPoll)
	c.Lease = cmp.Or(c.Lease, defaultLease)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, defaultReplayDrain)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate reports invalid fields and explains how to fix them.
func (c ReplayerConfig) Validate() error {
	var errs []error
	if c.Batch < 0 || c.Batch > maxPageSize {
		errs = append(errs, fmt.Errorf("failed: ReplayerConfig.Batch must be between 0 and %d: got %d (0 means %d)", maxPageSize, c.Batch, defaultBatch))
	}
	if c.Poll < 0 {
		errs = append(errs, fmt.Errorf("failed: ReplayerConfig.Poll must not be negative: got %s (0 means %s)", c.Poll, defaultPoll))
	}
	if c.Lease != 0 && c.Lease < time.Second {
		errs = append(errs, fmt.Errorf("failed: ReplayerConfig.Lease must be at least 1s: got %s (0 means %s)", c.Lease, defaultLease))
	}
	if c.DrainTimeout < 0 {
		errs = append(errs, fmt.Errorf("failed: ReplayerConfig.DrainTimeout must not be negative: got %s (0 means %s)", c.DrainTimeout, defaultReplayDrain))
	}
	if slices.Contains(c.Marks, nil) {
		errs = append(errs, errors.New("failed: ReplayerConfig.Marks must not contain nil"))
	}
	return errors.Join(errs...)
}

// replayStore contains the methods of Archive that a Replayer needs.
type replayStore interface {
	Running(ctx context.Context) ([]Replay, error)
	Replay(ctx context.Context, id ReplayID) (*Replay, error)
	unsentOf(ctx context.Context, id ReplayID, n int) ([]*Message, error)
	markSent(ctx context.Context, id ReplayID, ids []ID, why unaskedReason) error
	markRefused(ctx context.Context, id ReplayID, refusals []refusal) error
	claimReplay(ctx context.Context, id ReplayID, owner string, lease time.Duration) (bool, error)
	releaseReplay(ctx context.Context, id ReplayID, owner string) error
	EndReplay(ctx context.Context, id ReplayID, s ReplayState, why string, who Actor) error
	List(ctx context.Context, f Filter, p Page) ([]Summary, string, error)
	Get(ctx context.Context, id ID) (*Message, error)
}

// publisher contains the methods of Client that a Replayer needs. PublishBatch returns nil or a *reprise.BatchError.
type publisher interface {
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
// that Replayer stops, or does not renew its lease within ReplayerConfig.Lease, another Replayer takes over.
//
// ReplayerConfig.Logger receives:
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
	store   replayStore
	out     publisher
	cfg     ReplayerConfig
	router  *router
	secrets []Rule // for BulkEdit.SpareSecrets
	owner   string // identifies the Replayer to the archive
	wake    signal

	outcomes *collector[protocol.Outcome] // nil: messages do not request outcome reports

	mu     sync.Mutex
	active map[ReplayID]bool
}

// NewReplayer checks cfg and returns a Replayer. Run or Finish starts it. NewReplayer does not access the broker or the
// database.
func NewReplayer(c *reprise.Client, a *Archive, cfg ReplayerConfig) (*Replayer, error) {
	switch {
	case a == nil:
		return nil, errors.New("failed: NewReplayer: archive must not be nil")
	case c == nil:
		return nil, errors.New("failed: NewReplayer: client must not be nil")
	}
	r, err := newReplayer(c, a, cfg)
	if err == nil {
		r.secrets = a.cfg.Redact
		r.outcomes = newOutcomes(c, a, r.cfg.Logger)
	}
	return r, err
}

func newReplayer(c publisher, a replayStore, cfg ReplayerConfig) (*Replayer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.Marks = slices.Clone(cfg.Marks)
	return &Replayer{store: a, out: c, cfg: cfg, router: newRouter(cfg.Routing, cfg.Logger), owner: rand.Text(), wake: newSignal(), active: map[ReplayID]bool{}}, nil
}

// Run executes all replays concurrently until ctx is done. Then it records the messages in flight and returns nil.
func (r *Replayer) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	if r.outcomes != nil {
		running.Go(func() { r.outcomes.collect(ctx) })
	}
	failures := 0
	for {
		all, err := r.store.Running(ctx)
		delay := r.cfg.Poll
		if err != nil && ctx.Err() == nil {
			failures++
			delay = storeBackoff.Delay(failures)
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
func (r *Replayer) Wake() { r.wake.send() }

// Finish executes one replay and returns its final state. While another Replayer, or Run of this Replayer, executes the
// replay, Finish waits, and continues the replay if that Replayer stops. If ctx is done, it returns an error and the
// last known state of the replay. It returns ErrNotFound if the replay does not exist.
func (r *Replayer) Finish(ctx context.Context, id ReplayID) (*Replay, error) {
	if r.outcomes != nil {
		taking, stop := context.WithCancel(ctx)
		var taker sync.WaitGroup
		taker.Go(func() { r.outcomes.collect(taking) })
		defer taker.Wait()
		defer stop()
	}
	for {
		err := errTaken
		replay := &Replay{ID: id}
		if r.enter(id) {
			replay, err = r.execute(ctx, id)
			r.leave(id)
		}
		if !errors.Is(err, errTaken) {
			return replay, err
		}
		if err := sleep(ctx, r.cfg.Poll); err != nil {
			return replay, err
		}
	}
}

func (r *Replayer) enter(id ReplayID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active[id] {
		return false
	}
	r.active[id] = true
	return true
}

func (r *Replayer) leave(id ReplayID) {
	r.mu.Lock()
	delete(r.active, id)
	r.mu.Unlock()
}
