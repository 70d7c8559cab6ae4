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
	"github.com/reprisemq/reprise/topology"
)

// policyReplay is the Actor of a replay that ends by itself.
const policyReplay Actor = "policy:replay"

// Defaults of ReplayerConfig.
const (
	defaultPoll        = time.Second
	defaultLease       = 15 * time.Second
	defaultReplayDrain = 15 * time.Second
)

// ReplayerConfig adjusts a Replayer. The zero value means the defaults.
type ReplayerConfig struct {
	// Marks are those of workers that messages go back to, where they are neither
	// Reprise's own nor a preset's: their headers are left out as well.
	Marks []topology.Marks

	// Routing is what is known of the way back. Default: nothing, and messages are sent to
	// their work queues by name.
	Routing Routing

	// Batch is how many messages are sent before it is noted that they were: as
	// many may be sent a second time after a crash. Fewer are sent together where
	// the rate is low. Default 100.
	Batch int

	// Poll is how often to look for replays that have begun, been cancelled, or
	// have messages fail again. Default 1 s.
	Poll time.Duration

	// Lease is how long a replay is left alone whose process does not say that it is
	// alive. At least 1 s. Default 15 s.
	Lease time.Duration

	// DrainTimeout is how long the broker's answers to what is on its way are waited for
	// when Run or Finish is to end. What is unanswered then is sent again by whoever
	// goes on. Default 15 s.
	DrainTimeout time.Duration

	// Logger receives the events listed at Replayer. Default: none.
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

// Validate reports settings that cannot work and what to write instead.
func (c ReplayerConfig) Validate() error {
	var errs []error
	if c.Batch < 0 || c.Batch > maxPageSize {
		errs = append(errs, fmt.Errorf("failed: ReplayerConfig.Batch %d: use 1 to %d, or 0 for %d", c.Batch, maxPageSize, defaultBatch))
	}
	if c.Poll < 0 {
		errs = append(errs, fmt.Errorf("failed: ReplayerConfig.Poll %s is negative: use 0 for %s", c.Poll, defaultPoll))
	}
	if c.Lease != 0 && c.Lease < time.Second {
		errs = append(errs, fmt.Errorf("failed: ReplayerConfig.Lease %s: use at least 1s, or 0 for %s", c.Lease, defaultLease))
	}
	if c.DrainTimeout < 0 {
		errs = append(errs, fmt.Errorf("failed: ReplayerConfig.DrainTimeout %s is negative: use 0 for %s", c.DrainTimeout, defaultReplayDrain))
	}
	if slices.Contains(c.Marks, nil) {
		errs = append(errs, errors.New("failed: ReplayerConfig.Marks has a nil entry: leave it out"))
	}
	return errors.Join(errs...)
}

// replays is what a Replayer needs of an Archive.
type replays interface {
	Running(ctx context.Context) ([]Replay, error)
	Replay(ctx context.Context, id ReplayID) (*Replay, error)
	unsentOf(ctx context.Context, id ReplayID, n int) ([]*Message, error)
	markSent(ctx context.Context, id ReplayID, ids []ID, why unasked) error
	markRefused(ctx context.Context, id ReplayID, refusals []refusal) error
	claimReplay(ctx context.Context, id ReplayID, owner string, lease time.Duration) (bool, error)
	releaseReplay(ctx context.Context, id ReplayID, owner string) error
	EndReplay(ctx context.Context, id ReplayID, s ReplayState, why string, who Actor) error
	List(ctx context.Context, f Filter, p Page) ([]Summary, string, error)
	Get(ctx context.Context, id ID) (*Message, error)
}

// publisher is what it needs of a Client. The error is a *reprise.BatchError.
type publisher interface {
	PublishBatch(ctx context.Context, messages []*reprise.Message) error
}

// Replayer carries out the replays that are begun in an Archive, by whomever, and
// those that a process which was killed has left behind.
//
//	Next ─► published, confirmed ─► Sent ─► Next …
//
// A message goes to the work queue it failed in, as Routing says, or to the Target of its
// Plan. It has all its attempts before it: what the attempts so
// far have left in its headers, those of Reprise, of the presets and of the broker,
// is not sent; all else is, and the headers that tell where it was first published
// stay. It carries topology.HeaderReplay, by which the archive knows it should it fail again.
//
// What has been sent is noted once the broker has confirmed it. So a crash in
// between sends up to a batch of messages again, and loses none; and so does a connection
// that is lost before the answers. Who ends in order, or finds the replay cancelled,
// waits for the answers (DrainTimeout), notes them, and lets go of the replay then. They
// are sent in order; where some of a batch must be sent once more, they come after the
// others of their batch.
//
// What is wrong with a message itself, so that it could not be sent wherever to, is
// noted on it (Message.Refused), and the others go on: its headers do not fit into a
// frame, its body is larger than the broker takes, AMQP has no such value, nothing
// says in which queue it failed, or Plan.Edit does not change it or is not possible for it.
// A message of a plan with an Edit is sent edited or not at all, unless the edit says otherwise.
//
// While the broker or the store cannot be reached it is tried again. A replay stops,
// and what it has not sent is failed again, when
//
//   - a message fails again with the fingerprint it had (unless Plan.IgnoreSame), or
//     the canary fails again at all: an Ingest has to bring it into the same archive;
//   - the first attempt of the canary fails, or with Plan.Ramp that of any message (unless Plan.IgnoreSame);
//   - the canary has no outcome in time: see Plan.Canary;
//   - there is no such queue or exchange, or the user may not publish to it: it would be
//     the same for the others;
//   - somebody ends it (EndReplay).
//
// Messages ask their workers for a report (topology.HeaderOutcome). While Run or Finish is under way, it declares the queue for
// outcomes and takes the reports into the archive: see Outcome. A message is sent without a request if its headers leave no room
// for it, if nothing shows that the target leads to one queue alone, or while the queue for outcomes cannot be declared. Its outcome
// is unknown then, unless it fails again.
//
// Any number of Replayers may share an archive, in any number of processes: each
// replay is carried out by one of them. Another one takes over when that has ended,
// or has not been heard of for the Lease.
//
// Its Logger receives:
//
//	replay began     replay, messages, sent            (Info)
//	replay ended     replay, state, why, sent, refused (Info)
//	replay waits     replay, error, next_try           (Warn: the store or the broker does not answer)
//	message refused  replay, message, error            (Warn: it can never be sent)
//	replay asks for no outcomes  replay, error         (Warn: the queue for outcomes cannot be declared; it is tried again)
//	outcomes wait     error, next_try                  (Warn: the store does not answer; without next_try: the queue for outcomes cannot be declared)
//	report ignored    queue, message_id, error         (Warn: a message in the queue for outcomes is no report, or no database takes it)
//	replay sends by queue name  replay, queue, warning (Warn: see Destination.Warning)
//	bindings cannot be read     error, next_try        (Warn: see Routing.Bindings)
type Replayer struct {
	store   replays
	out     publisher
	cfg     ReplayerConfig
	returns *returns
	secrets []Rule // that BulkEdit.SpareSecrets spares
	owner   string // to the archive
	wake    signal

	outcomes *collector[topology.Outcome] // nil: nobody is asked for outcomes

	mu     sync.Mutex
	active map[ReplayID]bool
}

// NewReplayer checks cfg and returns a Replayer for Run to start, or Finish. It does
// not talk to the broker or to the database.
func NewReplayer(c *reprise.Client, a *Archive, cfg ReplayerConfig) (*Replayer, error) {
	switch {
	case a == nil:
		return nil, errors.New("failed: NewReplayer needs an Archive: Open returns one")
	case c == nil:
		return nil, errors.New("failed: NewReplayer needs a Client: reprise.Dial returns one")
	}
	r, err := newReplayer(c, a, cfg)
	if err == nil {
		r.secrets = a.cfg.Redact
		r.outcomes = newOutcomes(c, a, r.cfg.Logger)
	}
	return r, err
}

func newReplayer(c publisher, a replays, cfg ReplayerConfig) (*Replayer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.Marks = slices.Clone(cfg.Marks)
	return &Replayer{store: a, out: c, cfg: cfg, returns: newReturns(cfg.Routing, cfg.Logger), owner: rand.Text(), wake: newSignal(), active: map[ReplayID]bool{}}, nil
}

// Run carries out all replays, any number at a time, until ctx ends. It returns nil
// then, when the messages that were being sent are noted.
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
					_, _ = r.carryOut(ctx, replay.ID) // it is logged
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

// Wake makes Run look for replays now.
func (r *Replayer) Wake() { r.wake.send() }

// Finish carries out one replay and returns it as it has ended. While another
// Replayer, or this one in Run, carries it out, Finish waits, and goes on should that
// end. When ctx ends it returns an error and the replay as far as it is known;
// ErrNotFound, if there is none.
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
			replay, err = r.carryOut(ctx, id)
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
