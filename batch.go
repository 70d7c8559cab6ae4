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

// PublishBatch publishes messages as Publish does, many at a time on the way: the
// next one is sent without waiting for the last one's answer. It returns when all
// are answered, with nil if every one is stored, else with a *BatchError that says
// which are not, and why. A message that fails does not stop the others.
//
// They are sent in the order of the slice. (After an error in the middle, the
// queue has what follows nevertheless.) Those to a queue that does not confirm (see
// Publish) are sent in that order after all others, and hold up none of these. A message
// that needs a channel of its own (see Publish) is waited for; after a third of the
// ConfirmTimeout, or 10 s, the messages that follow may overtake it.
//
// The ConfirmTimeout is for progress: when not one message can be sent for so
// long, the rest is not sent, of all or of those to such a queue; what is unanswered so long after the last one
// was sent is ErrUnconfirmed. When ctx ends, the rest is not sent, and the error
// of each message tells whether it was. The messages must not be changed during
// the call: see Publish.
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

// sendAll hands over one message after the other, until none can be sent. Those
// without an error may have an answer.
func (c *Client) sendAll(ctx context.Context, messages []*Message) (pubs []*publish.Message, errs []error) {
	pubs, errs = make([]*publish.Message, len(messages)), make([]error, len(messages))
	timer := time.NewTimer(c.cfg.ConfirmTimeout)
	defer timer.Stop()
	later := map[[2]string][]int{}
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
			if later[to] != nil || c.messages.IsLate(pubs[i]) {
				later[to] = append(later[to], i)
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
	for _, those := range later {
		all.Go(func() { c.sendLate(ctx, those, end, pubs, errs) })
	}
	all.Wait()
	return pubs, errs
}

// sendLate hands over the messages for one late destination, until one cannot be sent; none
// if there is an error from the beginning.
func (c *Client) sendLate(ctx context.Context, those []int, end error, pubs []*publish.Message, errs []error) {
	timer := time.NewTimer(c.cfg.ConfirmTimeout)
	defer timer.Stop()
	var previous *publish.Message
	for _, i := range those {
		if end == nil {
			timer.Reset(c.cfg.ConfirmTimeout)
			end = c.messages.SendInOrder(ctx, previous, pubs[i], timer.C)
			previous = pubs[i]
		}
		errs[i] = end
	}
}

// BatchError says which messages of a batch were not published. errors.Is and
// errors.As look into all of them.
type BatchError struct {
	Messages int             // how many there were in all
	Failed   []*MessageError // in the order of the batch, at least one
}

// MessageError is the error of one message of a batch.
type MessageError struct {
	Index     int    // in the batch, from 0
	MessageID string // "" if the message was nil
	Err       error  // what Publish would have returned
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

// Unwrap returns the errors of the messages.
func (e *BatchError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		errs[i] = f
	}
	return errs
}

func (e *MessageError) Error() string {
	return fmt.Sprintf("message %d (%s): %s", e.Index, e.MessageID, strings.TrimPrefix(e.Err.Error(), "reprise: "))
}

func (e *MessageError) Unwrap() error { return e.Err }
