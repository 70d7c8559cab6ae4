package reprise

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/internal/protocol"
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

	// HeaderCrashes is the number of deliveries of a parked or leased message that were never settled (int64).
	HeaderCrashes = consume.HeaderCrashes

	// HeaderRedelivered is true (bool) in the copy of a message that was redelivered: see Delivery.Redelivered.
	HeaderRedelivered = "x-reprise-redelivered"

	// HeaderLease identifies a copy in a lease queue (longstr): see WorkerConfig.Lease. A message with this header in a work
	// queue has returned from there, because its attempt was interrupted.
	HeaderLease = consume.HeaderLease

	// HeaderCheckpoint contains the data of SaveCheckpoint (bytes).
	HeaderCheckpoint = "x-reprise-checkpoint"

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
	case HeaderCC, HeaderUserID, HeaderExpiration, HeaderCrashes, HeaderRedelivered, HeaderLease, HeaderCheckpoint, HeaderUnreadable, topology.HeaderReplay, protocol.HeaderOutcome, protocol.HeaderDue:
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

// mark is a method of topology.Marks that adds marks to the headers of a copy.
type mark func(headers topology.Table, f topology.Failure) topology.Table

// fill sets the copy of p for its hop. The copy includes the handler's annotations (notes) if they can be sent. The parameter
// reserve is the number of bytes that remain free in the header frame, for headers that brokers add.
func (pl *planner) fill(d *delivery, p *plan, notes topology.Table, m mark, reserve int) error {
	headers := p.carry(d, pl.user())
	delete(headers, HeaderCrashes)
	delete(headers, HeaderLease)
	if data := d.Saved(); data != nil {
		headers[HeaderCheckpoint] = data
	}
	if reserve > 0 && d.Crashed() {
		headers[HeaderCrashes] = int64(d.Crashes)
	}
	if reserve > 0 && d.Redelivered && pl.copies { // otherwise the retries themselves are redeliveries
		headers[HeaderRedelivered] = true
	}
	p.copy.Expiration = amqpconn.FormatExpiration(p.hop.TTL)
	p.copied = true
	p.hop.Topology = pl.cfg.override(p.hop.Topology)
	p.failure.Room = amqpconn.HeaderRoom(&p.copy, int(d.FrameSize), reserve)
	if len(p.hop.Headers) > 0 {
		p.failure.Room -= p.hop.Headers.WireSize()
	}
	if len(notes) == 0 {
		return p.write(headers, m)
	}
	noted := headers.Clone()
	for k, v := range notes {
		if !isReserved(k) && !pl.cfg.Strategy.Marks.Owns(k) {
			noted[k] = v
		}
	}
	err := p.write(noted, m)
	if err == nil {
		return nil
	}
	text := p.failure.Error
	p.failure.Error += "\n\nheaders of Annotate omitted: " + err.Error()
	if err = p.write(headers, m); err != nil {
		p.failure.Error = text
	}
	return err
}

// write adds the marks and the headers of the hop to headers, and sets the encoded headers of the copy.
func (p *plan) write(headers topology.Table, m mark) (err error) {
	headers = m(headers, p.failure)
	if size := headers.WireSize(); size > p.failure.Room {
		return fmt.Errorf("%w: headers must have at most %d bytes, the room in the broker's frames: got %d", ErrInvalidMessage, p.failure.Room, size)
	}
	if len(p.hop.Headers) > 0 {
		headers = headers.Clone()
		maps.Copy(headers, p.hop.Headers)
	}
	p.copy.Headers, err = amqpconn.EncodeTable(headers)
	return err
}

// carry moves the properties of a delivery into the copy. It returns the headers of the copy without marks. Reprise headers
// store the properties that a copy must not have.
func (p *plan) carry(d *delivery, user string) topology.Table {
	headers := make(topology.Table, len(d.Marked))
	for k, v := range d.Marked {
		if !amqpvalue.IsBrokerHeader(k) && k != headerCC && k != headerBCC && !strings.HasPrefix(k, topology.HeaderLevel) {
			headers[k] = v
		}
	}
	delete(headers, protocol.HeaderDue)
	stash := func(name string, value any) {
		if _, stashed := headers[name]; !stashed { // a stashed value is older, so it is the original value
			headers[name] = value
		}
	}
	if cc, found := d.Marked[headerCC]; found {
		stash(HeaderCC, cc)
	}
	if d.Expiration != "" {
		stash(HeaderExpiration, d.Expiration)
	}
	p.copy = d.Message
	p.copy.Headers = nil
	p.copy.Zero &= amqpwire.PropertyFlags(sendable)
	if p.copy.MessageID = d.id; d.id == "" {
		p.copy.MessageID = rand.Text()
	}
	if d.UserID != "" {
		delete(headers, HeaderUserID) // the broker has checked the property, not the header
		if d.UserID != user {
			stash(HeaderUserID, d.UserID)
			p.copy.UserID = ""
		}
	}
	return headers
}

// leaseQueue returns the lease queue of this process. Its copies return to the work queue when they expire. The queue expires
// only after a time in which a returned copy certainly reaches the work queue, unless the work queue does not exist.
func (c *WorkerConfig) leaseQueue() topology.Queue {
	q := topology.Queue{Name: c.Queue + ".lease." + rand.Text()[:leaseSuffix], Args: topology.Table{
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": c.Queue,
		"x-message-ttl": c.Lease.Milliseconds(), "x-expires": leaseQueueExpires.Milliseconds(),
	}}
	for _, work := range c.topology().Queues {
		if work.Name == c.Queue && work.Args["x-queue-type"] != "quorum" {
			return q
		}
	}
	maps.Copy(q.Args, topology.Table{
		"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
		"x-delivery-limit": int64(math.MaxInt32), // a copy must not be dropped
	})
	return q
}

const (
	leaseSuffix       = 16
	leaseQueueExpires = 7 * 24 * time.Hour
)

// moved returns the plan to publish an unfinished message to a lease queue, with the given HeaderLease, or back to its work
// queue, without. The attempt does not count, and the marks keep the origin of the message.
func (pl *planner) moved(d *delivery, queue, id string) (*plan, error) {
	p := &plan{way: retrying, event: EventRequeued, verb: ack.Ack, hop: topology.Hop{RoutingKey: queue}}
	p.failure = topology.Failure{
		AttemptError: topology.AttemptError{Attempt: d.History.Attempts}, Uncounted: true, History: d.History, Queue: pl.cfg.Queue,
	}
	p.failure.Exchange, p.failure.RoutingKey = d.History.OriginAt(d.At())
	err := guard.Call("strategy", func() error {
		return pl.fill(d, p, nil, func(headers topology.Table, f topology.Failure) topology.Table {
			out := pl.cfg.Strategy.Marks.Retry(headers, f)
			out[HeaderRedelivered] = true
			if id == "" {
				return out
			}
			out[HeaderLease] = id
			if d.Crashes > 0 {
				out[HeaderCrashes] = int64(d.Crashes)
			}
			return out
		}, amqpconn.RoomForDeaths)
	})
	return p, err
}

// Lease publishes a copy of a message whose attempt continues.
func (o *owner) Lease(ctx context.Context, in *consume.Delivery, id string) (again bool, err error) {
	w := (*Worker)(o)
	err = w.move(ctx, in.Owned.(*delivery), w.leaseQueue, id)
	return publish.Classify(err) == publish.Transient, err
}

// DeclareLeaseQueue implements [consume.Owner].
func (o *owner) DeclareLeaseQueue(ctx context.Context, q topology.Queue) error {
	return o.client.declare(ctx, o.client.consuming, topology.Topology{Queues: []topology.Queue{q}})
}

// move publishes a copy of an unfinished message.
func (w *Worker) move(ctx context.Context, d *delivery, queue, id string) error {
	p, err := w.planner.moved(d, queue, id)
	if err != nil {
		return err
	}
	err = w.client.publishCopy(ctx, p, func() { w.logger(d, p).Warn("confirm is late", "to", queue) })
	if err == nil { // the lease queue may be new
		err = retry.Sleep(ctx, time.Until(p.mature))
	}
	return err
}

// handBack returns the message of an interrupted attempt to its work queue. A leased message first tries to return by a copy,
// because the broker would count a rejected copy as a crash.
func (w *Worker) handBack(d *delivery) {
	if d.Leased() {
		ctx, cancel := context.WithTimeout(d.Context(), consume.LastGrace)
		defer cancel()
		if err := w.move(ctx, d, w.cfg.Queue, ""); err == nil {
			_ = d.Settle(ack.Ack) // after an error, the broker returns the message a second time
			return
		}
	}
	d.Requeue()
}
