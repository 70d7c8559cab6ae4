package replay

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/background"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/framework"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// redrivePoll is the interval at which Redrive checks whether another consumer has emptied the queue.
const redrivePoll = 250 * time.Millisecond

// Redrive moves the messages of a failed queue to the work queues in which they failed, or to RedriveConfig.To, in
// order and one at a time. It publishes a message, waits for the publisher confirm, and then acknowledges the original.
// found is the number of messages that were in the queue when Redrive was called, at most RedriveConfig.Limit. sent is
// the number of messages that the broker confirmed and Redrive removed from the queue. Redrive does not need an
// archive. As with a Replayer, a worker counts the attempts of each message from the beginning.
//
// A crash or a lost connection does not lose messages. It may duplicate the message in flight. Redrive leaves later
// arrivals in the queue, so that it returns even if all messages fail again immediately. If a message that it has sent
// fails again and overtakes the others, because of its priority, Redrive stops with an error and does not send the message
// twice. After a lost connection, it may send later arrivals of others instead of messages whose removal is uncertain.
//
// If Redrive stops early, it returns the reason. If the queue or exchange does not exist or the broker refuses a
// message, this message and the messages behind it stay in the queue. While the broker does not accept messages,
// Redrive waits, at most until ctx is done. It does not send messages that another consumer takes in the meantime.
func Redrive(ctx context.Context, c *reprise.Client, cfg RedriveConfig) (found, sent int, err error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if err := protocol.CheckNotKeyed(cfg.From); err != nil {
		return 0, 0, err
	}
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
		mark: redriveMark + rand.Text(), client: c, cfg: cfg, end: end, found: found, changed: background.NewSignal(),
		pace:   newPace(failed.Plan{Rate: cfg.Rate}, 1, time.Now()),
		router: newRouter(cfg.Routing, cfg.Logger),
	}
	w, err := reprise.NewWorker(c, reprise.WorkerConfig{
		Queue:       cfg.From,
		Handler:     reprise.HandlerFunc(d.move),
		AsDelivered: true,
		Acked:       d.acked,
		Limiter:     d,
		Strategy:    background.ReceiveOnly(),
		Concurrency: 1,
		Prefetch:    1, // before RabbitMQ 4.3, each requeue counts as a failed delivery
		CrashLimit:  -1,
		// publish waits up to redriveGrace for the message in flight
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

// redriveMark is the prefix of the values of topology.HeaderReplay by which a redrive recognizes its messages. It is not the
// number of a replay.
const redriveMark = "redrive/"

// errDone is the cause with which a redrive is canceled when no messages are left to send.
var errDone = errors.New("all messages were sent")

// redrive is a running Redrive.
type redrive struct {
	mark       string // value of topology.HeaderReplay of the sent messages
	client     *reprise.Client
	cfg        RedriveConfig
	router     *router
	warned     warnedQueues
	end        context.CancelCauseFunc
	changed    background.Signal
	progressMu sync.Mutex // serializes Progress
	pace       *pace

	mu    sync.Mutex
	found int // number of messages to send
	sent  int // confirmed and removed from the queue
	open  int // started, with an unknown result
	steps int // number of changes to the counters above
}

// Wait implements reprise.Limiter. It permits as many messages as were found.
func (d *redrive) Wait(ctx context.Context) error {
	for {
		d.mu.Lock()
		free := d.sent+d.open < d.found
		d.mu.Unlock()
		if free {
			return d.waitForPace(ctx)
		}
		select {
		case <-d.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// waitForPace waits until the pace permits the next message. It counts the message as started only during the wait,
// because the worker may not start the handler. The handler counts the message again when it starts. Only one message
// waits at a time.
func (d *redrive) waitForPace(ctx context.Context) error {
	d.count(1)
	defer d.count(-1)
	if err := retry.Sleep(ctx, d.pace.wait(time.Now())); err != nil {
		return err
	}
	d.pace.send(1, time.Now())
	return nil
}

// count adds n to the number of started messages with an unknown result.
func (d *redrive) count(n int) {
	d.mu.Lock()
	d.open += n
	d.steps++
	d.mu.Unlock()
	d.changed.Send()
}

// move is the handler. It returns an error only after ctx is done. The worker then requeues the message, and the broker
// restores its position.
func (d *redrive) move(ctx context.Context, m *reprise.Delivery) error {
	d.count(1) // until the worker calls acked
	out, failedIn, err := d.message(ctx, m)
	if err == nil {
		err = d.publish(ctx, out, failedIn)
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

// message returns the message to publish for a message of the failed queue, and the queue in which it failed.
func (d *redrive) message(ctx context.Context, m *reprise.Delivery) (out *reprise.Message, failedIn string, err error) {
	if m.Headers[topology.HeaderReplay] == d.mark {
		return nil, "", fmt.Errorf("message %s was sent and has failed again, and is now before the remaining messages of queue %s (pause the worker, or correct the cause first)", brief.Quoted(m.MessageID), brief.Quoted(d.cfg.From))
	}
	at, to, err := d.cfg.target(ctx, m, d.router)
	err = cmp.Or(err, to.check(d.cfg.ByQueueName))
	if err == nil && at.Claimed && d.cfg.Believe != nil && !d.router.deadLetters(ctx, at.Queue, d.cfg.From) && !d.cfg.Believe(at.Queue) {
		err = &ClaimError{Queue: at.Queue}
	}
	if err != nil {
		return nil, "", fmt.Errorf("cannot redrive message %s of queue %s: %w", brief.Quoted(m.MessageID), brief.Quoted(d.cfg.From), err)
	}
	if d.warned.first(to) {
		d.cfg.Logger.Warn("redrive sends by queue name", "queue", to.Queue, "warning", to.Warning)
	}
	content := failed.ContentOf(m)
	restored, err := framework.Restore(content, m.Queue, content)
	if err != nil {
		return nil, "", fmt.Errorf("cannot redrive message %s of queue %s: %w", brief.Quoted(m.MessageID), brief.Quoted(d.cfg.From), err)
	}
	out = failed.ResetAttempts(restored.Content, d.cfg.Marks)
	out.Exchange, out.RoutingKey = to.Exchange, to.RoutingKey
	out.Headers[topology.HeaderReplay] = d.mark
	return out, at.Queue, nil
}

// publish retries until the broker confirms the message, an error occurs that a retry cannot solve, or ctx is done.
func (d *redrive) publish(ctx context.Context, m *reprise.Message, failedIn string) error {
	longer, cancel := background.Grace(ctx, redriveGrace)
	defer cancel()
	for failures := 1; ; failures++ {
		err := d.client.Publish(longer, m)
		if isDivided(err, m, failedIn) {
			m.RoutingKey = failedIn
			err = d.client.Publish(longer, m)
		}
		switch {
		case err == nil:
			return nil
		case isMessageError(err), isTargetError(err), errors.Is(err, reprise.ErrClosed):
			return fmt.Errorf("cannot redrive message %s of queue %s: %w", brief.Quoted(m.MessageID), brief.Quoted(d.cfg.From), err)
		}
		delay := background.StoreBackoff.Delay(failures)
		d.cfg.Logger.Warn("redrive waits", "queue", d.cfg.From, "error", err, "next_try", delay)
		if retry.Sleep(ctx, delay) != nil {
			return err
		}
	}
}

// redriveGrace is shorter than the time for which a stopping worker waits for its handlers.
const redriveGrace = 4 * time.Second

// acked receives the result of the acknowledgement of a message that was sent.
func (d *redrive) acked(_ *reprise.Delivery, err error) {
	d.progressMu.Lock()
	defer d.progressMu.Unlock()
	d.mu.Lock()
	d.open--
	d.steps++
	if err == nil {
		d.sent++
	}
	found, sent := d.found, d.sent
	d.mu.Unlock()
	d.changed.Send()
	if err == nil && d.cfg.Progress != nil {
		d.cfg.Progress(found, sent)
	}
	if sent >= found {
		d.end(errDone)
	}
}

// watch ends a redrive if the queue is empty because another consumer took some of the messages.
func (d *redrive) watch(ctx context.Context) {
	last := -1
	for retry.Sleep(ctx, redrivePoll) == nil {
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

// RedriveConfig configures Redrive. From is required.
type RedriveConfig struct {
	From string         // the failed queue
	To   *failed.Target // destination; nil: the work queue in which each message failed

	// Origin returns the work queue in which a message failed: see ingest.Config.Origin. Default: none.
	Origin func(*reprise.Delivery) string

	// Believe decides whether to send a message to a work queue that only a header names. The publisher may have
	// written this header, such as x-reprise-queue or x-death. If Believe returns false, Redrive stops and returns
	// a *ClaimError. Redrive does not call Believe if Origin, the name of the failed queue or Routing.Queue confirms the
	// work queue. LookBeforeRedrive sets Destination.Claimed for each work queue that Believe must accept.
	// Default: accept all.
	Believe func(queue string) bool

	// Routing determines how messages return to their work queues: see Config.Routing.
	Routing Routing

	// ByQueueName permits sending messages by the name of their queue if no other route is known. Otherwise Redrive
	// stops at such a message and returns a *RouteError. See Destination.Warning for the risk. Default: not permitted.
	ByQueueName bool

	// Marks contains the marks of workers with a custom design: see Config.Marks.
	Marks []topology.Marks

	// Limit is the maximum number of messages to send, from the head of the queue. Default: 0 (all
	// messages in the queue).
	Limit int

	// Rate is the maximum number of messages per second. Default: 0 (no limit).
	Rate float64

	// Progress is called after each sent message, with the numbers that Redrive would return. Calls do not overlap.
	// Default: none.
	Progress func(found, sent int)

	// Logger receives three events with level Warn. "redrive waits" has the attributes queue, error and next_try, and
	// reports that the broker does not accept messages. "redrive sends by queue name" has queue and warning, see
	// Destination.Warning. "cannot read bindings" has error and next_try. Default: no logging.
	Logger *slog.Logger
}

// target returns the route of a message, and the work queue in which the message failed. It is claimed only if the route depends on it.
func (c RedriveConfig) target(ctx context.Context, m *reprise.Delivery, r *router) (failed.Place, route, error) {
	a := framework.Take(m, c.Origin)
	at := framework.PlaceOf(m, c.Origin).OrByName(c.From)
	to, err := r.to(ctx, store.Origin{Queue: at.Queue, FailedQueue: c.From, Exchange: a.Exchange, Key: a.RoutingKey}, c.To)
	at.Claimed = at.Claimed && c.To == nil
	return at, to, err
}
