package reprise

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/publish"
)

// PublishBatch publishes messages as Publish does, but sends each message without waiting for the confirm of the
// previous message. It returns when the result of each message is known. It returns nil if the broker has stored all of
// them, and otherwise a *BatchError that lists the failed messages and their errors. A message that is invalid or
// refused does not stop the others.
//
// The messages are sent in the order of the slice. The broker receives the later messages of the slice even if it refuses
// an earlier message. Messages to a queue that does not confirm (see Publish) are sent after all others, in the order of
// the slice, and do not delay the others. If a message needs a separate channel (see Publish), the following messages
// wait for its confirm, for at most a third of the ConfirmTimeout or 10 s, whichever is less. After that time, they may
// overtake it.
//
// The ConfirmTimeout limits the time without progress. If no message can be sent within the ConfirmTimeout,
// PublishBatch does not send the rest. The same applies separately to the messages for each queue that does not
// confirm. A message that is not confirmed within the ConfirmTimeout after the last send fails with ErrUnconfirmed. If
// ctx is done, PublishBatch does not send the rest, and the error of each unconfirmed message reports whether the
// message was sent. The caller must not change the messages during the call: see Publish.
func (c *Client) PublishBatch(ctx context.Context, messages []*Message) error {
	pubs, errs := c.sendAll(ctx, messages)
	expired := make(chan time.Time)
	defer time.AfterFunc(c.cfg.ConfirmTimeout, func() { close(expired) }).Stop()
	var failed []*MessageError
	for i, m := range messages {
		if errs[i] == nil {
			errs[i] = c.messages.Await(ctx, pubs[i], expired, nil)
		}
		c.published(m, pubs[i], errs[i])
		if errs[i] != nil {
			failed = append(failed, newMessageError(i, m, errs[i]))
		}
	}
	if len(failed) > 0 {
		return &BatchError{Messages: len(messages), Failed: failed}
	}
	return nil
}

// sendAll sends the messages in order, and then the messages for late destinations. It skips invalid messages, and
// stops at any other error. A message without an error was sent, but is not necessarily confirmed yet.
func (c *Client) sendAll(ctx context.Context, messages []*Message) (pubs []*publish.Message, errs []error) {
	pubs, errs = make([]*publish.Message, len(messages)), make([]error, len(messages))
	timer := time.NewTimer(c.cfg.ConfirmTimeout)
	defer timer.Stop()
	deferred := map[[2]string][]int{}
	var end error
	var previous *publish.Message
	for i, m := range messages {
		if end == nil && ctx.Err() != nil {
			end = publish.NotSent(ctx)
		}
		if end != nil {
			errs[i] = end
			continue
		}
		timer.Reset(c.cfg.ConfirmTimeout)
		if errs[i] = c.before(ctx, m); errs[i] != nil {
			continue
		}
		pubs[i], errs[i] = c.prepare(ctx, m, amqpconn.RoomForDeaths, timer.C)
		if errs[i] == nil {
			to := [2]string{m.Exchange, m.RoutingKey}
			if deferred[to] != nil || c.messages.IsLate(pubs[i]) {
				deferred[to] = append(deferred[to], i)
				continue
			}
			errs[i] = c.messages.SendInOrder(ctx, previous, pubs[i], timer.C)
			if errs[i] == nil {
				previous = pubs[i]
			}
		}
		if errs[i] != nil && !errors.Is(errs[i], ErrInvalidMessage) {
			end = errs[i]
		}
	}
	var all sync.WaitGroup
	for _, group := range deferred {
		all.Go(func() { c.sendLate(ctx, group, end, pubs, errs) })
	}
	all.Wait()
	return pubs, errs
}

// sendLate sends the messages for one late destination until a send fails. If end is not nil, sendLate sends nothing, and
// all messages fail with end.
func (c *Client) sendLate(ctx context.Context, group []int, end error, pubs []*publish.Message, errs []error) {
	timer := time.NewTimer(c.cfg.ConfirmTimeout)
	defer timer.Stop()
	var previous *publish.Message
	for _, i := range group {
		if end == nil {
			timer.Reset(c.cfg.ConfirmTimeout)
			end = c.messages.SendInOrder(ctx, previous, pubs[i], timer.C)
			previous = pubs[i]
		}
		errs[i] = end
	}
}

// BatchError lists the failed messages of a batch. errors.Is and errors.As examine the errors of all failed messages.
type BatchError struct {
	Messages int             // number of messages in the batch
	Failed   []*MessageError // in the order of the batch, at least one
}

// MessageError is the error of one message of a batch.
type MessageError struct {
	Index     int    // index in the batch, from 0
	MessageID string // "" if the message was nil, or failed before Publish set an ID
	Err       error  // the error that Publish would have returned
}

func newMessageError(index int, m *Message, err error) *MessageError {
	if m == nil {
		return &MessageError{Index: index, Err: err}
	}
	return &MessageError{Index: index, MessageID: m.MessageID, Err: err}
}

func (e *BatchError) Error() string {
	const most = 3
	var b strings.Builder
	fmt.Fprintf(&b, "reprise: %d of %d messages failed: ", len(e.Failed), e.Messages)
	for i, f := range e.Failed {
		if i == most {
			fmt.Fprintf(&b, "; and %d more", len(e.Failed)-most)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(f.Error())
	}
	return b.String()
}

// Unwrap returns the elements of e.Failed.
func (e *BatchError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		errs[i] = f
	}
	return errs
}

func (e *MessageError) Error() string {
	id := ""
	if e.MessageID != "" {
		id = fmt.Sprintf(" (%s)", e.MessageID)
	}
	return fmt.Sprintf("message %d%s: %s", e.Index, id, strings.TrimPrefix(e.Err.Error(), "reprise: "))
}

func (e *MessageError) Unwrap() error { return e.Err }
