package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/archive/background"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/framework"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/retry"
)

// sendBatch sends up to n messages, and reports whether there were any messages to send. It does not record messages as
// sent that fail for a temporary reason; a later call sends them again.
func (x *run) sendBatch(ctx context.Context, n int) (bool, error) {
	if err := x.ask(ctx); err != nil {
		return false, err
	}
	var batch []*failed.Message
	err := x.retry(ctx, func(ctx context.Context) (err error) {
		batch, err = x.store.UnsentOf(ctx, x.replay.ID, n)
		return err
	})
	if err != nil || len(batch) == 0 {
		return false, err
	}
	if x.pace != nil {
		x.pace.send(len(batch), time.Now())
	}
	var done batchResult
	for i, p := range x.publish(ctx, batch) {
		done.add(batch[i].ID, p)
	}
	if err := errors.Join(done.ends, x.note(ctx, done)); err != nil {
		return true, err
	}
	return true, x.pause(ctx, done)
}

// publishResult is the result of publishing a message.
type publishResult struct {
	sentAs
	err error
}

// sentAs is what the archive records about a sent message.
type sentAs struct {
	unasked store.UnaskedReason
	reached string // see store.Archive.MarkSent
}

// publish publishes messages, and returns their results in the same order.
func (x *run) publish(ctx context.Context, batch []*failed.Message) []publishResult {
	all := make([]publishResult, len(batch))
	var messages []*reprise.Message
	var places []int // indexes in batch
	for i, m := range batch {
		if x.edit != nil {
			content, err := x.edit.Sent(m.Current())
			if err != nil {
				all[i].err = err
				continue
			}
			edited := *m
			edited.Edited, m = &content, &edited
		}
		from := store.Origin{Queue: m.Queue, FailedQueue: m.FailedQueue, Exchange: m.Exchange, Key: m.RoutingKey}
		to, err := x.router.to(ctx, from, x.replay.Plan.To)
		if err = cmp.Or(err, to.check(x.replay.Plan.ByQueueName)); err != nil {
			all[i].err = err
			continue
		}
		restored, err := framework.Restore(m.Content, m.FailedQueue, m.Current())
		if err != nil {
			all[i].err = err
			continue
		}
		if x.replay.Plan.To == nil && to.Queue != m.Queue {
			all[i].reached = to.Queue
		}
		if x.warned.first(to) {
			x.cfg.Logger.Warn("replay sends by queue name", "replay", x.replay.ID, "queue", to.Queue, "warning", to.Warning)
		}
		sent := *m
		sent.Edited = &restored.Content
		out := failed.ReplayMessage(&sent, x.replay.ID, to.Target, x.cfg.Marks)
		if all[i].unasked = store.StringsOnly; !restored.StringsOnly {
			all[i].unasked = x.request(out, m.ID, to)
		}
		messages, places = append(messages, out), append(places, i)
	}
	longer, cancel := background.Grace(ctx, x.cfg.DrainTimeout)
	defer cancel()
	var again []*reprise.Message
	var againPlaces []int
	for i, err := range x.batch(longer, messages) {
		n := places[i]
		m, out := batch[n], messages[i]
		all[n].err = err
		_, asks := out.Headers[protocol.HeaderOutcome]
		switch {
		case isDivided(err, out, m.Queue):
			out.RoutingKey = m.Queue
			if asks {
				x.request(out, m.ID, route{Queue: m.Queue})
			}
		case asks && errors.Is(err, reprise.ErrInvalidMessage):
			delete(out.Headers, protocol.HeaderOutcome)
			all[n].unasked = store.NoRoom
		default:
			continue
		}
		again, againPlaces = append(again, out), append(againPlaces, n)
	}
	for i, err := range x.batch(longer, again) {
		all[againPlaces[i]].err = err
	}
	return all
}

// request adds a request for a report to a message and returns store.Asked, or returns the reason why it adds no request.
func (x *run) request(out *reprise.Message, id failed.ID, to route) store.UnaskedReason {
	switch {
	case x.secret == "":
		return store.NoQueue
	case to.Queue == "": // a worker of one queue does not know the outcomes of the other queues
		return store.NoSingle
	}
	out.Headers[protocol.HeaderOutcome] = protocol.OutcomeRequest{
		To: x.archive.OutcomeQueue(), Replay: fmt.Sprintf("%d/%d", x.replay.ID, id),
		Key: store.OutcomeKey(x.secret, x.replay.ID, id, to.Queue), Queue: to.Queue, MessageID: out.MessageID,
	}.Table()
	return store.Asked
}

// batch publishes messages, and returns one error per message.
func (x *run) batch(ctx context.Context, messages []*reprise.Message) []error {
	errs := make([]error, len(messages))
	if len(messages) == 0 {
		return nil
	}
	if failed, ok := errors.AsType[*reprise.BatchError](x.out.PublishBatch(ctx, messages)); ok {
		for _, f := range failed.Failed {
			errs[f.Index] = f.Err
		}
	}
	return errs
}

// batchResult collects the results of a batch.
type batchResult struct {
	sent    map[sentAs][]failed.ID // sent and confirmed
	refused []store.Refusal
	wrong   error // cause of the latest failure that can be retried
	ends    error // ends the run, because the other messages would fail in the same way
}

// add adds the result of publishing a message.
func (s *batchResult) add(id failed.ID, p publishResult) {
	switch err := p.err; {
	case err == nil:
		if s.sent == nil {
			s.sent = make(map[sentAs][]failed.ID)
		}
		s.sent[p.sentAs] = append(s.sent[p.sentAs], id)
	case isMessageError(err):
		s.refused = append(s.refused, store.Refusal{ID: id, Why: err.Error()})
	case s.ends != nil:
	case isTargetError(err):
		s.ends = &stopError{store.RefusalText(store.Refusal{ID: id, Why: err.Error()})}
	case errors.Is(err, reprise.ErrClosed):
		s.ends = err
	default:
		s.wrong = err
	}
}

// note records the results in the database.
func (x *run) note(ctx context.Context, done batchResult) error {
	longer, cancel := background.Grace(ctx, background.NoteGrace)
	defer cancel()
	for _, r := range done.refused {
		x.cfg.Logger.Warn("message refused", "replay", x.replay.ID, "message", r.ID, "error", r.Why)
	}
	err := x.retry(longer, func(ctx context.Context) error {
		var errs []error
		for as, ids := range done.sent {
			errs = append(errs, x.store.MarkSent(ctx, x.replay.ID, ids, as.unasked, as.reached))
		}
		return errors.Join(append(errs, x.store.MarkRefused(ctx, x.replay.ID, done.refused))...)
	})
	for _, ids := range done.sent {
		x.replay.Sent += int64(len(ids))
	}
	x.replay.Refused += int64(len(done.refused))
	return err
}

// pause waits after a temporary failure, with a growing delay while the broker accepts no message.
func (x *run) pause(ctx context.Context, done batchResult) error {
	if len(done.sent) > 0 || done.wrong == nil {
		x.failed = 0
	}
	if done.wrong == nil {
		return nil
	}
	x.failed++
	delay := background.StoreBackoff.Delay(x.failed)
	x.cfg.Logger.Warn("replay waits", "replay", x.replay.ID, "error", done.wrong, "next_try", delay)
	if err := retry.Sleep(ctx, delay); err != nil {
		return err
	}
	return x.retry(ctx, x.refresh)
}

// isMessageError reports whether the message causes the error, so that the Replayer can send the other messages.
func isMessageError(err error) bool {
	_, large := errors.AsType[*reprise.TooLargeError](err)
	refused, ok := errors.AsType[*reprise.RefusedError](err)
	_, byName := errors.AsType[*RouteError](err)
	_, lost := errors.AsType[*framework.LossError](err)
	return large || byName || lost || errors.Is(err, reprise.ErrInvalidMessage) || errors.Is(err, errUnknownQueue) || errors.Is(err, failed.ErrUneditable) || ok && refused.Code == amqpconn.PreconditionFailed
}

// isTargetError reports whether the error concerns the destination or the user. Other messages would fail in the same
// way until an operator changes the destination or the permissions.
func isTargetError(err error) bool {
	_, unroutable := errors.AsType[*reprise.UnroutableError](err)
	_, refused := errors.AsType[*reprise.RefusedError](err)
	return unroutable || refused && !isMessageError(err)
}
