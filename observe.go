package reprise

import (
	"log/slog"
	"time"

	"github.com/reprisemq/reprise/internal/guard"
	"github.com/reprisemq/reprise/internal/loglimit"
)

// Observer receives the events of clients and workers, for metrics or for tests.
//
// The client and its workers call Observe concurrently, from the goroutines that process messages. Observe must return
// immediately and must not call the Client or Worker. The separate package prommetrics contains an Observer for Prometheus.
type Observer interface {
	Observe(e Event)
}

// ObserverFunc is a function that implements Observer.
type ObserverFunc func(e Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// guardedObserver wraps an Observer and logs its panics.
type guardedObserver struct {
	observer Observer
	log      *slog.Logger
	limit    loglimit.Limit
}

func (g *guardedObserver) Observe(e Event) {
	err := guard.Call("observer", func() error {
		g.observer.Observe(e)
		return nil
	})
	if err == nil {
		return
	}
	g.limit.Log(g.log, slog.LevelError, "observer failed", "event", e.Kind.String(), "error", err)
}

// EventKind is the kind of an Event.
type EventKind int

// Kinds of events, with the fields of Event that are set besides Kind. Events of a message or a worker also set Queue and
// Worker. Events of a message also set MessageID and Attempt.
const (
	// Events of a message. A started message is handled, and then it is processed, retried, parked or requeued. If the
	// connection fails, the message is not settled (EventDropped), and the broker redelivers it.
	EventStarted     EventKind = iota + 1 // an attempt starts; Age
	EventHandled                          // the handler has returned; Err, Took
	EventDone                             // acknowledged
	EventRetried                          // the message will be retried; Err, Delay
	EventParked                           // the message is in the failed queue; Err
	EventRequeued                         // requeued; the attempt does not count.
	EventDropped                          // not settled, usually because the connection failed; redelivered by the broker; Err.
	EventLost                             // may be lost: acknowledged without a confirmed copy; only with AckThenPublish; Err
	EventDebounced                        // acknowledged together with an equal message, and not handled
	EventCopyFailed                       // the broker did not confirm the copy of a failed message, and the worker publishes it again; Err, Delay.
	EventCopyRefused                      // the broker permanently refuses the copy of a failed message, and the worker parks the message in another way; Err
	EventTimeoutNear                      // unacked for most of the acknowledgement timeout; Took. See WorkerConfig.ConsumerTimeout
	EventUnreported                       // the worker could not report the outcome to the archive that replayed the message; Err. See docs/failed-messages.md

	// Events of a worker.
	EventConsuming   // the worker starts to consume
	EventInterrupted // the worker does not consume and tries again; Err, Delay. ErrClosed means that the worker has stopped
	EventPaused      // the worker does not consume, on purpose; Err is the reason (nil if unknown), Delay the duration
	EventResumed     // the worker consumes again

	// Events of a client.
	EventPublished    // by Publish and related methods; Err, Took
	EventConnected    // Connection
	EventDisconnected // Connection, Err
	EventBlocked      // the broker does not currently accept messages; Connection, Err
	EventUnblocked    // Connection
)

var eventNames = [...]string{
	EventStarted: "started", EventHandled: "handled", EventDone: "done", EventRetried: "retried", EventParked: "parked",
	EventRequeued: "requeued", EventDropped: "dropped", EventLost: "lost", EventDebounced: "debounced", EventCopyFailed: "copy failed", EventCopyRefused: "copy refused", EventTimeoutNear: "timeout near",
	EventUnreported: "unreported",
	EventConsuming:  "consuming", EventInterrupted: "interrupted", EventPaused: "paused", EventResumed: "resumed",
	EventPublished: "published", EventConnected: "connected", EventDisconnected: "disconnected",
	EventBlocked: "blocked", EventUnblocked: "unblocked",
}

// String returns the name of the kind, for example "parked".
func (k EventKind) String() string {
	if k > 0 && int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "unknown"
}

// Event describes one event. Its Kind determines which fields are set.
type Event struct {
	Kind       EventKind
	Queue      string        // the work queue
	Worker     int           // number of the worker within its Client, from 1; several workers may have the same queue.
	Connection string        // "publish" or "consume"
	MessageID  string        // if the message has none, the ID of its copies (Delivery.MessageIDAssigned), or ""
	Delivery   *Delivery     // message that the handler received, read-only; set only in EventHandled and the final event
	Attempt    int           // from 1
	Age        time.Duration // time since the Timestamp of the message; 0 without a Timestamp.
	Took       time.Duration // run time of the handler, time until the publisher confirm, or time since the delivery
	Delay      time.Duration // time until the retry, or until the next attempt to publish or consume

	// AsDelivered reports that the worker moves or stores messages (WorkerConfig.AsDelivered), such as the worker of
	// failed.Ingest. The Queue of such a worker may be any queue, not only a work queue, and EventDone means that a
	// message was removed from the Queue, not that it was processed.
	AsDelivered bool

	// Rejected reports that the worker rejected the delivery instead of acknowledging it, as the Strategy requires. Set only
	// in EventRetried and EventParked.
	Rejected bool

	Err error // cause of a failure; nil without a failure
}
