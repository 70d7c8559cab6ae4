package reprise

import (
	"log/slog"
	"time"

	"github.com/reprisemq/reprise/internal/guard"
)

// Observer is told what clients and workers do: for metrics, or for a test.
//
// Observe is called from the goroutines that do the work, many at a time. It
// must return at once and must not call back into the Client or Worker.
// Package prommetrics, beside this one, is a ready-made one.
type Observer interface {
	Observe(e Event)
}

// ObserverFunc makes a function an Observer.
type ObserverFunc func(e Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// guarded is an Observer whose panics are logged.
type guarded struct {
	observer Observer
	log      *slog.Logger
}

func (g guarded) Observe(e Event) {
	err := guard.Call("observer", func() error {
		g.observer.Observe(e)
		return nil
	})
	if err != nil {
		g.log.Error("observer failed", "event", e.Kind.String(), "error", err)
	}
}

// EventKind says what happened.
type EventKind int

// Kinds of events, and the fields of Event that have a meaning besides Kind.
// Those of a worker have Queue and Worker, those of a message also MessageID and Attempt.
const (
	// Of a message. What is started is handled, and then either done, retried,
	// parked or given back; or it is lost with its connection (EventDropped) and
	// delivered again.
	EventStarted     EventKind = iota + 1 // an attempt begins; Age
	EventHandled                          // the handler has returned; Err, Took
	EventDone                             // acknowledged
	EventRetried                          // it comes back; Err, Delay
	EventParked                           // it is in the failed queue; Err
	EventGivenBack                        // back in its queue, the attempt not counted
	EventDropped                          // not settled, its connection is gone; Err. It is delivered again
	EventLost                             // acknowledged, or perhaps, and its copy not published; Err. With AckThenPublish only
	EventDebounced                        // acknowledged with another one like it, not handled
	EventCopyFailed                       // the copy of a failed message was not taken, and is tried again; Err, Delay
	EventTimeoutNear                      // held for so long that the broker loses patience soon; Took. See WorkerConfig.ConsumerTimeout
	EventUnreported                       // the archive that replayed it was not told its outcome; Err. See topology.OutcomeRequest

	// Of a worker.
	EventConsuming   // it has a consumer
	EventInterrupted // it has none, and tries again; Err, Delay. With ErrClosed: it has ended
	EventPaused      // it consumes nothing on purpose; Err is why (nil where that is not known), Delay how long
	EventResumed     // it consumes again

	// Of a client.
	EventPublished    // by Publish and its kin; Err, Took
	EventConnected    // Connection
	EventDisconnected // Connection, Err
	EventBlocked      // Connection; Err: the broker takes nothing for now
	EventUnblocked    // Connection
)

var eventNames = [...]string{
	EventStarted: "started", EventHandled: "handled", EventDone: "done", EventRetried: "retried", EventParked: "parked",
	EventGivenBack: "given back", EventDropped: "dropped", EventLost: "lost", EventDebounced: "debounced", EventCopyFailed: "copy failed", EventTimeoutNear: "timeout near",
	EventUnreported: "unreported",
	EventConsuming:  "consuming", EventInterrupted: "interrupted", EventPaused: "paused", EventResumed: "resumed",
	EventPublished: "published", EventConnected: "connected", EventDisconnected: "disconnected",
	EventBlocked: "blocked", EventUnblocked: "unblocked",
}

// String returns a word for the kind, such as "given back".
func (k EventKind) String() string {
	if k > 0 && int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "unknown"
}

// Event is something that happened. Which fields are set depends on its Kind.
type Event struct {
	Kind       EventKind
	Queue      string        // the work queue
	Worker     int           // which of the Client's workers, from 1: several may have one queue
	Connection string        // "publish" or "consume"
	MessageID  string        // "" where the message has none
	Message    *Message      // the message as the handler was given it, from EventHandled on; nil if no handler was called. It must not be changed
	Attempt    int           // from 1
	Age        time.Duration // since the message's Timestamp; 0 where it has none
	Took       time.Duration // how long the handler ran, or the broker took to confirm, or the message is held
	Delay      time.Duration // until the message comes back, or it is tried again

	// AsDelivered reports that the worker moves or keeps messages (WorkerConfig.AsDelivered),
	// such as that of failed.Ingest. Its Queue need not be a work queue, and EventDone means
	// that a message was taken out of the Queue, not that its work is done.
	AsDelivered bool

	Err error // what went wrong; nil: nothing
}
