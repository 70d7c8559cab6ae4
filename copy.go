package reprise

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/bounded"
	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/internal/publish"
	"github.com/reprisemq/reprise/internal/retry"
	"github.com/reprisemq/reprise/topology"
)

// Headers that Reprise adds to a copy if the copy needs them. A handler gets the values of the first three as the
// header CC, the UserID and the Expiration of the Message.
const (
	// HeaderCC has the value of the header CC. If a copy had the header CC, the broker would also route the copy to the keys
	// that CC lists.
	HeaderCC = "x-reprise-cc"

	// HeaderUserID has the value of the property user-id, if that value is not the user of the worker's connection. The
	// broker refuses a message whose user-id names another user.
	HeaderUserID = "x-reprise-user-id"

	// HeaderExpiration has the value of the property expiration. A copy with that property could expire while it waits for
	// a retry, or in the failed queue.
	HeaderExpiration = "x-reprise-expiration"

	// HeaderCrashes is the number of deliveries of a parked message that were never settled (int64).
	HeaderCrashes = "x-reprise-crashes"

	// HeaderRedelivered is true (bool) in the copy of a message that was redelivered: see Message.Redelivered.
	HeaderRedelivered = "x-reprise-redelivered"

	// HeaderUnreadable represents headers that a Go program cannot decode: tables or arrays that nest more than 32 deep or have
	// more than 8,192 entries, or headers that exceed the maximum size of a frame. It exists only in the program, as their
	// encoded bytes. Publish writes the original headers again, if they fit into a frame.
	HeaderUnreadable = amqpconn.HeaderUnreadable
)

const (
	headerCC  = "CC"
	headerBCC = "BCC"
)

// isOwnHeader reports whether Reprise writes a header regardless of the strategy's marks.
func isOwnHeader(header string) bool {
	switch header {
	case HeaderCC, HeaderUserID, HeaderExpiration, HeaderCrashes, HeaderRedelivered, HeaderUnreadable, topology.HeaderReplay, topology.HeaderOutcome:
		return true
	}
	return strings.HasPrefix(header, topology.HeaderLevel)
}

// middlewareHeaders are the Reprise headers that middleware writes with Annotate: HeaderBusy of package idempotent, and
// HeaderPrevious of package oteltrace.
var middlewareHeaders = map[string]bool{"x-reprise-busy": true, "x-reprise-previous-traceparent": true}

// isReserved reports whether Annotate must not set a header.
func isReserved(header string) bool {
	if middlewareHeaders[header] {
		return false
	}
	return strings.HasPrefix(header, "x-reprise-") || amqpvalue.IsBrokerHeader(header) || header == headerCC || header == headerBCC
}

// message returns the message for the handler. It does not share memory with the delivery, so a handler that changes the
// message does not change the copy that is retried.
func (w *Worker) message(d *delivery) Message {
	if w.cfg.AsDelivered {
		return messageOf(&d.Delivery.Delivery, w.cfg.Queue, amqpconn.CloneTable(d.Headers))
	}
	m := messageOf(&d.Delivery.Delivery, w.cfg.Queue, w.visibleHeaders(d))
	m.Attempt, m.FirstFailed = d.Attempt, d.History.FirstFailed
	m.Errors, m.ErrorsDropped = append([]AttemptError(nil), d.History.Errors...), d.History.ErrorsDropped
	m.Exchange, m.RoutingKey = d.History.OriginAt(d.At)
	if _, marked := d.Headers[HeaderRedelivered]; marked {
		m.Redelivered = true
	}
	if user, ok := d.Headers[HeaderUserID].(string); ok && m.UserID == "" {
		m.UserID = user
	}
	if expiration, ok := d.Headers[HeaderExpiration].(string); ok {
		m.Expiration = amqpconn.ParseExpiration(expiration)
	}
	if m.MessageID == "" && w.isCopied(d) {
		m.MessageID, m.MessageIDAssigned = copyID(d), true
	}
	return m
}

// messageOf returns the message of a delivery. It has the given headers, and no state of earlier attempts.
func messageOf(d *amqpconn.Delivery, queue string, headers map[string]any) Message {
	return Message{
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
		Queue:           queue,
		Attempt:         1,
		Redelivered:     d.Redelivered,
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

// isCopied reports whether the worker publishes a copy of the delivery to retry it.
func (w *Worker) isCopied(d *delivery) bool {
	var hop topology.Hop
	err := guard.Call("strategy", func() (err error) {
		hop, err = w.cfg.Strategy.Route.Wait(d.At, 0)
		return err
	})
	return err == nil && hop.Way == topology.Copy
}

// copyID returns the message ID for the copies of a delivery that has no ID. The first call generates it.
func copyID(d *delivery) string {
	if d.copyID == "" {
		d.copyID = rand.Text()
	}
	return d.copyID
}

// replacement specifies the next hop of a failed delivery, and contains the copy to publish, if any.
type replacement struct {
	hop     topology.Hop
	msg     amqpconn.Message // set if hop.Way is Copy
	failure topology.Failure
	result  *result // outcome of the attempt

	parked   bool
	unmarked bool // parked unchanged, as the last resort
}

// to returns the destination of the copy, for logs: QUEUE or EXCHANGE/KEY. It is "" if the broker moves the message.
func (c *replacement) to() string {
	if c.hop.Exchange == "" {
		return c.hop.RoutingKey
	}
	return c.hop.Exchange + "/" + c.hop.RoutingKey
}

func (w *Worker) newReplacement(d *delivery, r *result) *replacement {
	c := &replacement{failure: topology.Failure{
		AttemptError: topology.AttemptError{
			Attempt:  d.Attempt,
			Time:     time.Now(),
			Error:    r.text,
			Host:     w.host,
			Duration: r.took,
		},
		History: d.History,
		Queue:   w.cfg.Queue,
	}, result: r}
	c.failure.Exchange, c.failure.RoutingKey = d.History.OriginAt(d.At)
	return c
}

func (c *replacement) messageID(d *delivery) string {
	if c.msg.MessageID != "" {
		return c.msg.MessageID
	}
	return d.MessageID
}

// mark is a method of topology.Marks that adds marks to the headers of a copy.
type mark func(headers topology.Table, f topology.Failure) topology.Table

// fill sets c.msg to the copy for c.hop. It includes the handler's annotations (notes) if they can be sent. The parameter
// reserve is the number of bytes that remain free in the header frame, for headers that brokers add.
func (w *Worker) fill(d *delivery, c *replacement, notes topology.Table, m mark, reserve int) error {
	headers := c.carry(d, w.client.publishing.User())
	delete(headers, HeaderCrashes)
	if reserve > 0 && d.Crashed() {
		headers[HeaderCrashes] = int64(d.Crashes)
	}
	if reserve > 0 && d.Redelivered && w.isCopied(d) { // otherwise the retries themselves are redeliveries
		headers[HeaderRedelivered] = true
	}
	c.msg.Expiration = amqpconn.FormatExpiration(c.hop.TTL)
	c.hop.Topology = w.cfg.override(c.hop.Topology)
	c.failure.Room = amqpconn.HeaderRoom(&c.msg, d.FrameSize(), reserve)
	if len(c.hop.Headers) > 0 {
		c.failure.Room -= c.hop.Headers.WireSize()
	}
	if len(notes) == 0 {
		return c.write(headers, m)
	}
	noted := headers.Clone()
	for k, v := range notes {
		if !isReserved(k) && !w.cfg.Strategy.Marks.Owns(k) {
			noted[k] = v
		}
	}
	err := c.write(noted, m)
	if err == nil {
		return nil
	}
	text := c.failure.Error
	c.failure.Error += "\n\nheaders of Annotate omitted: " + err.Error()
	if err = c.write(headers, m); err != nil {
		c.failure.Error = text
	}
	return err
}

// write adds the marks and the headers of the hop to headers, and sets the encoded headers of the copy.
func (c *replacement) write(headers topology.Table, m mark) (err error) {
	headers = m(headers, c.failure)
	if size := headers.WireSize(); size > c.failure.Room {
		return fmt.Errorf("%w: headers must have at most %d bytes, the room in the broker's frames: got %d", ErrInvalidMessage, c.failure.Room, size)
	}
	if len(c.hop.Headers) > 0 {
		headers = headers.Clone()
		maps.Copy(headers, c.hop.Headers)
	}
	c.msg.Headers, err = amqpconn.EncodeTable(headers)
	return err
}

// carry moves the properties of a delivery into the copy. It returns the headers of the copy without marks. Reprise headers
// store the properties that a copy must not have.
func (c *replacement) carry(d *delivery, user string) topology.Table {
	headers := make(topology.Table, len(d.At.Headers))
	for k, v := range d.At.Headers {
		if !amqpvalue.IsBrokerHeader(k) && k != headerCC && k != headerBCC && !strings.HasPrefix(k, topology.HeaderLevel) {
			headers[k] = v
		}
	}
	stash := func(name string, value any) {
		if _, stashed := headers[name]; !stashed { // a stashed value is older, so it is the original value
			headers[name] = value
		}
	}
	if cc, found := d.At.Headers[headerCC]; found {
		stash(HeaderCC, cc)
	}
	if d.Expiration != "" {
		stash(HeaderExpiration, d.Expiration)
	}
	c.msg = d.Message
	c.msg.Headers = nil
	c.msg.Zero &= amqpwire.PropertyFlags(sendable)
	if c.msg.MessageID == "" {
		c.msg.MessageID = copyID(d)
	}
	if d.UserID != "" {
		delete(headers, HeaderUserID) // the broker has checked the property, not the header
		if d.UserID != user {
			stash(HeaderUserID, d.UserID)
			c.msg.UserID = ""
		}
	}
	return headers
}

// unroutedPause is the time for which a missing destination may still appear, for example during an import of definitions.
const unroutedPause = time.Minute

// refusedPause is the minimum time between two attempts to publish a copy that the broker has refused permanently.
const refusedPause = time.Minute

// divert changes c, whose copy the broker has refused permanently, to the next way to park the message. It returns false if
// there is none, and the worker then holds the message:
//
//	copy for a wait queue ─► copy for the failed queue ─► rejection ─► hold
//
// If sole is set, the delivery is already acknowledged, and cannot be rejected.
func (w *Worker) divert(d *delivery, c *replacement, refusal publish.Refusal, reason error, sole bool) bool {
	next := &replacement{failure: c.failure, result: c.result}
	next.failure.Error += "\n\nparked: cannot settle the message: " + reason.Error()
	var err error
	switch {
	case !c.parked && refusal == publish.DestinationRefused:
		err = guard.Call("strategy", func() error { return w.park(d, next, "copy refused") })
		if err != nil {
			err = w.parkUnmarked(d, next)
		}
	case !c.unmarked && errors.Is(reason, ErrInvalidMessage):
		err = w.parkUnmarked(d, next)
	default:
		return !sole && w.parkByRejection(d, c, reason)
	}
	if err != nil || next.hop.Way != topology.Copy {
		return !sole && w.parkByRejection(d, c, reason)
	}
	*c = *next
	return true
}

// parkByRejection sets c to a rejection if the broker moves the rejected message to the failed queue. The marks of c are lost.
// Without at-least-once dead-lettering, parkByRejection only checks that the failed queue exists. The broker then moves the
// message without a confirm, and can lose it if a node fails at that moment. Otherwise the message would stay unsettled until
// somebody corrects the cause of the refusal, with a redelivery at each acknowledgement timeout.
func (w *Worker) parkByRejection(d *delivery, c *replacement, reason error) bool {
	ctx, cancel := context.WithTimeout(d.Context(), w.client.cfg.ConfirmTimeout)
	defer cancel()
	err := guard.Call("strategy", func() error {
		failed := w.cfg.Strategy.Route.Failed(d.At)
		work, to, sure, ok := w.cfg.topology().Rejected(d.At, failed)
		if !ok {
			return errNotDeadLettered
		}
		conn, err := w.client.consuming.Get(ctx)
		if err != nil {
			return err
		}
		return conn.Do(ctx, func(ch *amqpconn.Channel) error {
			// The broker refuses the declaration if the arguments of the queue differ.
			if err := ch.DeclareQueue(ctx, work, false); err != nil || sure {
				return err
			}
			return ch.DeclareQueue(ctx, topology.Queue{Name: to}, true)
		})
	})
	if err != nil {
		w.log.Error("cannot be rejected", "message_id", d.MessageID, "attempt", d.Attempt, "error", err)
		return false
	}
	c.hop, c.parked, c.failure.Reason = topology.Hop{Way: topology.DeadLetter}, true, "copy refused"
	c.failure.Error += "\n\nrejected: " + reason.Error()
	return true
}

var errNotDeadLettered = errors.New("reprise: work queue does not dead-letter into the failed queue (declare it with x-dead-letter-exchange and x-dead-letter-routing-key)")

// hold keeps a delivery that can be neither copied nor rejected. The result must be called when it is no longer held.
func (w *Worker) hold(d *delivery, reason error) (release func()) {
	d.Hold()
	w.refusals.add(1, reason)
	w.reportHolding()
	return func() {
		d.Release()
		w.refusals.add(-1, nil)
		w.reportHolding()
	}
}

// untilDrain sleeps for d. It returns an error if ctx is done or the worker drains.
func (w *Worker) untilDrain(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.consumer.Draining(), func() { cancel(errDraining) })()
	return retry.Sleep(ctx, d)
}

// noteRefusal reports a permanent refusal.
func (w *Worker) noteRefusal(d *delivery, c *replacement, err error) {
	w.copyLogger(d, c).Error("copy refused", "to", c.to(), "error", err)
	w.observe(Event{Kind: EventCopyRefused, MessageID: d.MessageID, Attempt: d.Attempt, Err: err})
}

// refusals counts the held messages. It also contains the outcomes of messages that were held until the broker took them
// back. If the broker redelivers such a message soon, the worker settles it with this outcome and does not call the handler
// again.
type refusals struct {
	mu       sync.Mutex
	held     int
	reason   error                               // reason of the newest refusal
	outcomes *bounded.Map[attemptKey, outcomeAt] // nil: none
	unrouted *bounded.Map[hopKey, time.Time]     // when copies to a missing destination were first returned; nil: none
}

// attemptKey identifies an attempt of a message with an ID. Because some publishers use an ID for different messages, it
// contains the identity of the message.
type attemptKey struct {
	identity uint64
	attempt  int
}

// outcomeAt is the outcome of an attempt, and the time when the broker took back the message.
type outcomeAt struct {
	result
	at time.Time
}

const (
	maxOutcomes    = 1000             // maximum number of remembered outcomes
	outcomeExpires = 30 * time.Minute // later, a redelivered message with the same ID and content may be another one
	maxUnrouted    = 1000             // maximum number of remembered destinations
)

// add changes the number of held messages.
func (x *refusals) add(n int, reason error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.held += n
	if reason != nil {
		x.reason = reason
	}
}

// err returns ErrCopyRefused with the reason if messages are held.
func (x *refusals) err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.held == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d messages can be neither retried nor parked: %w", ErrCopyRefused, x.held, x.reason)
}

// missing records that the broker has returned a copy, and returns the time since the first of such copies to the same
// destination.
func (x *refusals) missing(hop topology.Hop, now time.Time) time.Duration {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unrouted == nil {
		x.unrouted = bounded.New[hopKey, time.Time](maxUnrouted)
	}
	since, known := x.unrouted.Get(keyOf(hop))
	if !known {
		since = now
		x.unrouted.Put(keyOf(hop), now)
	}
	return now.Sub(since)
}

// found records that the broker has confirmed a copy.
func (x *refusals) found(hop topology.Hop) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.unrouted != nil {
		x.unrouted.Drop(keyOf(hop))
	}
}

func (x *refusals) remember(d *delivery, r *result) {
	if d.MessageID == "" || r == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.outcomes == nil {
		x.outcomes = bounded.New[attemptKey, outcomeAt](maxOutcomes)
	}
	x.outcomes.Put(attemptKey{d.Identity(), d.Attempt}, outcomeAt{*r, time.Now()})
}

// recall sets r to the remembered outcome of a redelivered message, and forgets it.
func (x *refusals) recall(d *delivery, r *result) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.outcomes == nil || !d.Redelivered || d.MessageID == "" {
		return false
	}
	key := attemptKey{d.Identity(), d.Attempt}
	o, found := x.outcomes.Get(key)
	if found {
		x.outcomes.Drop(key)
	}
	if !found || time.Since(o.at) >= outcomeExpires {
		return false
	}
	*r = o.result
	return true
}
