package failed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// redrivePoll is how often it is looked whether another consumer has taken the rest.
const redrivePoll = 250 * time.Millisecond

// Redrive sends the messages that are in a failed queue when it is called back to
// where they failed, in order, one after the other: published and confirmed first,
// acknowledged then. It returns how many there were, up to RedriveConfig.Limit, and how many of
// them were published, confirmed, and are gone from the queue. It needs no archive. They have all their attempts before them,
// as with a Replayer.
//
// A crash or a lost connection loses nothing; the message that was on its way may be
// sent twice. What arrives in the queue meanwhile stays there, so that a redrive
// ends even if all fail again at once. Where the connection was lost, some of that may
// be sent in place of messages of which it is not known that they are gone.
//
// An error says why it ended before all were sent: the message that cannot be sent,
// since there is no such queue or exchange or the broker refuses it, is where it was,
// and so are those behind it. While the broker takes nothing, it waits until ctx
// ends. Messages that another consumer takes meanwhile are that one's.
func Redrive(ctx context.Context, c *reprise.Client, cfg RedriveConfig) (found, sent int, err error) {
	if c == nil {
		return 0, 0, errors.New("failed: Redrive needs a Client: reprise.Dial returns one")
	}
	if err := cfg.Validate(); err != nil {
		return 0, 0, err
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	found, err = c.Depth(ctx, cfg.From)
	if err != nil || found == 0 {
		return 0, 0, err
	}
	if cfg.Limit > 0 {
		found = min(found, cfg.Limit)
	}
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	d := &redrive{
		client: c, cfg: cfg, end: end, found: found, changed: newSignal(),
		pace:    newPace(Plan{Rate: cfg.Rate}, 1, time.Now()),
		returns: newReturns(cfg.Routing, cfg.Logger),
	}
	w, err := reprise.NewWorker(c, reprise.WorkerConfig{
		Queue:       cfg.From,
		Handler:     reprise.HandlerFunc(d.move),
		AsDelivered: true,
		Acked:       d.acked,
		Limiter:     d,
		Strategy:    keep(),
		Concurrency: 1,
		Prefetch:    1, // before RabbitMQ 4.3 it costs a message something to be given back
		CrashLimit:  -1,
		// What is being published has some seconds more.
		DrainTimeout: time.Millisecond,
	})
	if err != nil {
		return 0, 0, err
	}
	var watching sync.WaitGroup
	watching.Go(func() { d.watch(running) })
	err = w.Run(running)
	end(errDone)
	watching.Wait()
	if cause := context.Cause(running); cause != errDone {
		err = errors.Join(cause, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.found, d.sent, err
}

// errDone ends a redrive that has come to its end.
var errDone = errors.New("all messages were sent")

// redrive is one that is under way.
type redrive struct {
	client  *reprise.Client
	cfg     RedriveConfig
	returns *returns
	warned  warned
	end     context.CancelCauseFunc
	changed signal
	telling sync.Mutex // Progress
	pace    *pace

	mu    sync.Mutex
	found int // messages to send
	sent  int // of them: published, confirmed, and gone from the queue
	open  int // begun, and it is not known what became of it
	steps int // changes of what is above
}

// Wait implements reprise.Limiter: as many messages may begin as were found.
func (d *redrive) Wait(ctx context.Context) error {
	for {
		d.mu.Lock()
		free := d.sent+d.open < d.found
		d.mu.Unlock()
		if free {
			return d.turn(ctx)
		}
		select {
		case <-d.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// turn waits for the turn of the message that may begin. Whether it does is up to the
// worker, so that it is the handler that counts it from then on. There is one at a time.
func (d *redrive) turn(ctx context.Context) error {
	d.count(1)
	defer d.count(-1)
	if err := sleep(ctx, d.pace.wait(time.Now())); err != nil {
		return err
	}
	d.pace.send(1, time.Now())
	return nil
}

// count counts messages that have begun, and of which it is not known what became of them.
func (d *redrive) count(n int) {
	d.mu.Lock()
	d.open += n
	d.steps++
	d.mu.Unlock()
	d.changed.send()
}

// move is the handler. An error is returned only when ctx has ended: then the
// message goes back to its place.
func (d *redrive) move(ctx context.Context, m *reprise.Message) error {
	d.count(1) // until acked is told
	out, err := d.message(ctx, m)
	if err == nil {
		err = d.publish(ctx, out)
	}
	if err == nil {
		return nil
	}
	if ctx.Err() == nil {
		d.end(err)
		<-ctx.Done()
	}
	d.count(-1)
	return err
}

// message is what is published for a message.
func (d *redrive) message(ctx context.Context, m *reprise.Message) (*reprise.Message, error) {
	at, to, err := d.cfg.target(ctx, m, d.returns)
	if err == nil && at.claimed && d.cfg.Believe != nil && !d.cfg.Believe(at.queue) {
		err = &ClaimError{Queue: at.queue}
	}
	if err != nil {
		return nil, doing(err, "redrive of %q: message %q", d.cfg.From, m.MessageID)
	}
	if d.warned.first(to) {
		d.cfg.Logger.Warn("redrive sends by queue name", "queue", to.Queue, "warning", to.Warning)
	}
	out := fresh(contentOf(m), d.cfg.Marks)
	out.Exchange, out.RoutingKey = to.Exchange, to.RoutingKey
	return out, nil
}

// publish publishes a message until it is confirmed, or never will be.
func (d *redrive) publish(ctx context.Context, m *reprise.Message) error {
	longer, cancel := grace(ctx, redriveGrace)
	defer cancel()
	for failures := 1; ; failures++ {
		err := d.client.Publish(longer, m)
		switch {
		case err == nil:
			return nil
		case unfit(err), barred(err), errors.Is(err, reprise.ErrClosed):
			return doing(err, "redrive of %q: message %q cannot be sent", d.cfg.From, m.MessageID)
		}
		delay := storeBackoff.Delay(failures)
		d.cfg.Logger.Warn("redrive waits", "queue", d.cfg.From, "error", err, "next_try", delay)
		if sleep(ctx, delay) != nil {
			return err
		}
	}
}

// redriveGrace is less than a worker waits for its handlers at its end.
const redriveGrace = 4 * time.Second

// acked is told what became of the ack of a message that was sent.
func (d *redrive) acked(_ *reprise.Message, err error) {
	d.telling.Lock()
	defer d.telling.Unlock()
	d.mu.Lock()
	d.open--
	d.steps++
	if err == nil {
		d.sent++
	}
	found, sent := d.found, d.sent
	d.mu.Unlock()
	d.changed.send()
	if err == nil && d.cfg.Progress != nil {
		d.cfg.Progress(found, sent)
	}
	if sent >= found {
		d.end(errDone)
	}
}

// watch ends a redrive whose queue is empty, since another consumer has taken some.
func (d *redrive) watch(ctx context.Context) {
	last := -1
	for sleep(ctx, redrivePoll) == nil {
		d.mu.Lock()
		steps, idle := d.steps, d.open == 0
		d.mu.Unlock()
		if depth, err := d.client.Depth(ctx, d.cfg.From); err == nil && depth == 0 && idle && steps == last {
			d.end(errDone)
			return
		}
		last = steps
	}
}

// RedriveConfig says what to redrive. From is required.
type RedriveConfig struct {
	From string  // the failed queue
	To   *Target // where to; nil: to the work queue that each message failed in

	// Origin names the work queue that a message failed in, as IngestConfig.Origin
	// does. Default: none.
	Origin func(*reprise.Message) string

	// Believe is asked whether a message is to go to a work queue that nothing but a header
	// names, x-reprise-queue or x-first-death-queue, which whoever published it can have
	// written. What it does not believe ends the redrive with a *ClaimError. It is not asked
	// where Origin, the broker's x-death or the name of the failed queue says the same.
	// LookBeforeRedrive tells what there is to be believed. Default: all is.
	Believe func(queue string) bool

	// Routing is what is known of the way back, as ReplayerConfig.Routing.
	Routing Routing

	// Marks are those of workers that messages go back to, as ReplayerConfig.Marks.
	Marks []topology.Marks

	// Limit is the most messages to send, the first of the queue. Default 0: all that
	// are there.
	Limit int

	// Rate is the most messages to send per second. Default 0: no limit.
	Rate float64

	// Progress is called after each message that was sent, one call at a time, with the numbers
	// that Redrive returns. Default: none.
	Progress func(found, sent int)

	// Logger receives "redrive waits" with queue, error and next_try (Warn) while the
	// broker takes nothing, "redrive sends by queue name" with queue and warning (Warn, see
	// Destination.Warning), and "bindings cannot be read" with error and next_try (Warn).
	// Default: none.
	Logger *slog.Logger
}

// Validate reports what is missing and what to write instead.
func (c RedriveConfig) Validate() error {
	var errs []error
	if c.From == "" {
		errs = append(errs, errors.New("failed: RedriveConfig.From is empty: name the failed queue, such as orders.failed"))
	}
	if c.To != nil && *c.To == (Target{}) {
		errs = append(errs, errors.New("failed: RedriveConfig.To is empty: name a routing key, and an exchange unless it is a queue; or leave it nil for the queue that each message failed in"))
	}
	if slices.Contains(c.Marks, nil) {
		errs = append(errs, errors.New("failed: RedriveConfig.Marks has a nil entry: leave it out"))
	}
	if c.Limit < 0 || !(c.Rate >= 0) { // written so that NaN fails too
		errs = append(errs, fmt.Errorf("failed: RedriveConfig.Limit %d, Rate %v: use numbers above zero, or 0 for no limit", c.Limit, c.Rate))
	}
	return errors.Join(errs...)
}

// target is where a message goes, and in which queue it failed, if that decides it.
func (c RedriveConfig) target(ctx context.Context, m *reprise.Message, r *returns) (place, way, error) {
	if c.To != nil {
		return place{}, way{Target: *c.To}, nil
	}
	a := take(m, c.Origin)
	at := placeOf(m, historyOf(m.Headers), deaths(m.Headers), c.Origin).orByName(c.From)
	to, err := r.to(ctx, sentFrom{at.queue, c.From, a.Exchange, a.RoutingKey}, nil)
	return at, to, err
}
