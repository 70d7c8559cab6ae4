package reprise

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/topology"
)

// delivery is a message that the worker received. It shares one allocation with the message for the handler.
type delivery struct {
	consume.Delivery
	id      string // message ID; if the message has none and is retried by copies, an ID that the worker has assigned
	message Delivery
	handled bool   // the handler received the message
	routed  bool   // lane is set
	lane    *lane  // of the Mux; nil: none
	result  result // outcome of the attempt

	ctx      handlerContext
	progress atomic.Pointer[protocol.Progress] // nil: the handler has reported none
}

// result is the classified outcome of an attempt.
type result struct {
	verdict
	err     error
	text    string // error string that is recorded with the attempt
	reason  string // reason for parking, if the policy was not called
	headers topology.Table
	took    time.Duration
}

// arrived returns the delivery that New allocated, with its ID.
func (w *Worker) arrived(in *consume.Delivery) *delivery {
	d := in.Owned.(*delivery)
	if d.id == "" {
		if d.id = d.MessageID; d.id == "" && w.planner.copies && !w.cfg.AsDelivered {
			d.id = rand.Text()
		}
	}
	return d
}

// handlerMessage returns the message that the handler received, or nil.
func (d *delivery) handlerMessage() *Delivery {
	if !d.handled {
		return nil
	}
	return &d.message
}

func (d *delivery) age(now time.Time) time.Duration {
	if d.Timestamp.IsZero() {
		return 0
	}
	return max(0, now.Sub(d.Timestamp))
}

// message returns the message for the handler. It does not share memory with the delivery, so a handler that changes the
// message does not change the copy that is retried.
func (w *Worker) message(d *delivery) Delivery {
	if w.cfg.AsDelivered {
		return messageOf(&d.Delivery.Delivery, w.cfg.Queue, amqpconn.CloneTable(d.Headers))
	}
	original := d.Delivery.Delivery
	if expiration, ok := d.Headers[HeaderExpiration].(string); ok {
		original.Expiration = expiration
	}
	m := messageOf(&original, w.cfg.Queue, w.visibleHeaders(d))
	m.Attempt, m.FirstFailed = d.Attempt, d.History.FirstFailed
	m.Errors, m.ErrorsDropped = append([]AttemptError(nil), d.History.Errors...), d.History.ErrorsDropped
	m.Exchange, m.RoutingKey = d.History.OriginAt(d.At())
	if _, marked := d.Headers[HeaderRedelivered]; marked {
		m.Redelivered = true
	}
	if user, ok := d.Headers[HeaderUserID].(string); ok && m.UserID == "" {
		m.UserID = user
	}
	m.MessageID, m.MessageIDAssigned = d.id, d.id != d.MessageID
	m.Epoch = d.Epoch
	return m
}

// messageOf returns the message of a delivery. It has the given headers, and no state of earlier attempts.
func messageOf(d *amqpconn.Delivery, queue string, headers map[string]any) Delivery {
	return Delivery{
		Message: Message{
			Body:            bytes.Clone(d.Body),
			Headers:         headers,
			ContentType:     d.ContentType,
			ContentEncoding: d.ContentEncoding,
			CorrelationID:   d.CorrelationID,
			ReplyTo:         d.ReplyTo,
			MessageID:       d.MessageID,
			Type:            d.Type,
			AppID:           d.AppID,
			Priority:        d.Priority,
			Zero:            PropertySet(d.Zero),
			Timestamp:       d.Timestamp,
			UserID:          d.UserID,
			Expiration:      amqpconn.ParseExpiration(d.Expiration),
			Exchange:        d.Exchange,
			RoutingKey:      d.RoutingKey,
		},
		Queue:       queue,
		Attempt:     1,
		Redelivered: d.Redelivered,
	}
}

// visibleHeaders returns the headers of the message as first published, and the headers of Annotate.
func (w *Worker) visibleHeaders(d *delivery) map[string]any {
	out := make(map[string]any, len(d.Headers))
	for k, v := range d.Headers {
		if !amqpvalue.IsBrokerHeader(k) && !w.cfg.Strategy.Marks.Owns(k) && !isOwnHeader(k) {
			out[k] = amqpconn.CloneValue(v)
		}
	}
	if cc, stashed := d.Headers[HeaderCC]; stashed {
		out[headerCC] = amqpconn.CloneValue(cc)
	}
	return out
}

// Progress shows operators how far a handler has come, in the console and in `reprise workers --messages`. ctx is the
// context of the handler, or derived from it. The fraction is from 0 to 1, and the text is one short line, such as "page 4
// of 10"; a longer text is cut to 64 bytes. A negative fraction only shows that the handler is alive, and keeps the fraction
// and the text.
//
// Progress is cheap, so a handler may call it often: only the latest values are in the next status of the worker, which it
// sends every 15 s and on request. Progress does not extend a timeout. It has no effect if the worker is not announced (see
// Config.Announce), and with the context of a test. It is safe for concurrent use.
func Progress(ctx context.Context, fraction float64, text string) {
	d, ok := ctx.Value(progressKey{}).(*delivery)
	if !ok {
		return
	}
	p := protocol.NewProgress(fraction, text, time.Now())
	if last := d.progress.Load(); fraction < 0 && last != nil {
		p.Fraction, p.Text = last.Fraction, last.Text
	}
	d.progress.Store(&p)
}

// MaxCheckpoint is the maximum size of a checkpoint in bytes.
const MaxCheckpoint = 4096

// SaveCheckpoint stores data with the message, at most MaxCheckpoint bytes, so that the next attempt can continue the work of
// this attempt: see Checkpoint. The worker must have a Lease; otherwise SaveCheckpoint returns ErrNoLease. ctx is the context
// of the handler, or derived from it. With the context of a test, SaveCheckpoint has no effect.
//
// SaveCheckpoint returns nil after the broker has stored a copy of the message with the data. After an error, the data may be
// stored, and the handler can continue: the next checkpoint or renewal of the lease stores it. SaveCheckpoint waits while the
// broker is unreachable, until ctx is done. It costs as much as a retry, so do not call it more often than every few seconds.
// It is safe for concurrent use.
func SaveCheckpoint(ctx context.Context, data []byte) error {
	d, ok := ctx.Value(progressKey{}).(*delivery)
	switch {
	case !ok:
		return nil
	case !d.HasLease():
		return ErrNoLease
	case len(data) > MaxCheckpoint:
		return fmt.Errorf("reprise: checkpoint must have at most %d bytes: got %d (store the data elsewhere, and its key in the checkpoint)", MaxCheckpoint, len(data))
	}
	if err := d.Save(ctx, append([]byte{}, data...)); err != nil {
		return fmt.Errorf("reprise: cannot save checkpoint: %w", err)
	}
	return nil
}

// Checkpoint returns the last checkpoint of the message, or nil. An attempt that was interrupted by the end of its process, and
// a failed attempt, leave their checkpoint to the next attempt. A replay of a parked message starts without a checkpoint. ctx is
// the context of the handler, or derived from it.
func Checkpoint(ctx context.Context) []byte {
	d, ok := ctx.Value(progressKey{}).(*delivery)
	if !ok {
		return nil
	}
	data := d.Saved()
	if data == nil {
		data, _ = d.Marked[HeaderCheckpoint].([]byte)
	}
	return bytes.Clone(data)
}

type progressKey struct{}

// handlerContext is the context of a handler. It is part of a delivery, so that it needs no allocation.
type handlerContext struct {
	context.Context
	delivery *delivery
}

func (c *handlerContext) Value(key any) any {
	if key == (progressKey{}) {
		return c.delivery
	}
	return c.Context.Value(key)
}

// context returns the context for the handler of a delivery.
func (d *delivery) context(ctx context.Context) context.Context {
	d.ctx = handlerContext{ctx, d}
	return &d.ctx
}
