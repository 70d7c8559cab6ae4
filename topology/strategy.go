package topology

import (
	"errors"
	"time"
)

// Strategy is how a message that failed comes back, or is parked: the way its
// copies take (Route) and what is written on them (Marks). It is pure,
// addresses and headers only; package reprise does the I/O.
//
// The zero value is the default, Buckets and Trail; either field may also be
// left nil by itself.
type Strategy struct {
	Route Route
	Marks Marks // nil: those the Route asks for, else Trail{}
}

// WithDefaults returns s with nil fields replaced: Route by Buckets{}, Marks by
// what the Route's method Marks() returns, if it has one, or that of the Route which
// its method Unwrap() Route returns, else by Trail{}.
func (s Strategy) WithDefaults() Strategy {
	if s.Route == nil {
		s.Route = Buckets{}
	}
	if s.Marks == nil {
		s.Marks = marksOf(s.Route)
	}
	if s.Marks == nil {
		s.Marks = Trail{}
	}
	return s
}

// marksOf returns the Marks that a route asks for, or the one inside of it; nil: neither
// does.
func marksOf(r Route) Marks {
	for _, r := range []Route{r, inside(r)} {
		if asks, ok := r.(interface{ Marks() Marks }); ok {
			return asks.Marks()
		}
	}
	return nil
}

// inside returns the route that others are around, as those of package preset are.
func inside(r Route) Route {
	for {
		around, ok := r.(interface{ Unwrap() Route })
		if !ok {
			return r
		}
		r = around.Unwrap()
	}
}

// Validate reports what is wrong with the settings of either part, and Marks of this
// package that count nothing, since the Route publishes no copies. Parts of
// other packages take part by having a method Validate() error.
func (s Strategy) Validate() error {
	if err := errors.Join(validateNil("Route", s.Route), validateNil("Marks", s.Marks)); err != nil {
		return err
	}
	s = s.WithDefaults()
	for _, part := range []any{s.Route, s.Marks} {
		if v, ok := part.(interface{ Validate() error }); ok {
			if err := v.Validate(); err != nil {
				return err
			}
		}
	}
	return s.validateMarks()
}

// ValidateQueue reports why the strategy cannot serve a work queue. Routes of
// other packages take part by having a method ValidateQueue(string) error.
func (s Strategy) ValidateQueue(queue string) error {
	if v, ok := s.WithDefaults().Route.(interface{ ValidateQueue(string) error }); ok {
		return v.ValidateQueue(queue)
	}
	return nil
}

// Route is the way copies of a failed message take. Implementations are pure
// and safe for concurrent use.
//
// A Route that publishes no copy cannot write on one: what it counts attempts
// by are Marks of its own, which it names in a method Marks() Marks.
type Route interface {
	// Topology returns what must exist before the work queue is consumed.
	Topology(queue string) Topology

	// Wait returns where a copy goes that is to come back to d.Queue after
	// delay, never earlier. A route that knows one delay only, or none so long,
	// may answer with another; Hop.Delay says so. An error means that this message cannot
	// come back this way: it is parked instead, with the error on it.
	Wait(d Delivery, delay time.Duration) (Hop, error)

	// Failed returns where a copy goes that is parked.
	Failed(d Delivery) Hop
}

// Delivery is a message as the broker delivered it from the work queue.
type Delivery struct {
	Queue       string // the work queue
	Exchange    string // as delivered: after a retry often "", see History
	RoutingKey  string // as delivered
	Redelivered bool
	Headers     Table // all of them, bookkeeping and x-death included
}

// Marks are what attempts write on the copies of a message and read back on
// its next delivery. Implementations are pure and safe for concurrent use, and
// never change the tables they are given. They tolerate any header value: the
// tables may come from anyone.
type Marks interface {
	// Read returns what earlier attempts wrote on d.
	Read(d Delivery) History

	// Retry returns the headers of a copy that will be tried again.
	Retry(headers Table, f Failure) Table

	// Park returns the headers of a copy for the failed queue.
	Park(headers Table, f Failure) Table

	// Owns reports whether a header is bookkeeping: hidden from handlers, and
	// removed where a parked message gets a fresh start.
	Owns(header string) bool
}

// Undecided is the RetriesLeft of marks that do not count down: the Policy of
// the worker decides.
const Undecided = -1

// History is what earlier attempts left on a message.
type History struct {
	Attempts    int // attempts made before this delivery
	RetriesLeft int // how many more are allowed after this one, or Undecided

	// Where the message was first published, and the work queue it failed in.
	// Queue is "" when the marks do not keep the origin: then the delivery's
	// own exchange and key are the origin.
	Queue, Exchange, RoutingKey string

	FirstFailed   time.Time      // zero when it has not failed yet, or is not known
	Errors        []AttemptError // oldest first
	ErrorsDropped int            // how many between the first and the second of Errors were not kept
}

// AttemptError is one attempt that failed. Fields that were not recorded are zero.
type AttemptError struct {
	Attempt  int           // from 1
	Time     time.Time     // when it ended; whole seconds
	Error    string        // possibly cut
	Host     string        // where the handler ran
	Duration time.Duration // how long the handler ran; whole milliseconds
}

// Failure is what Marks write down about one failed attempt.
type Failure struct {
	AttemptError         // the attempt that just failed
	History      History // what Read said about it
	Reason       string  // why the message is parked, such as "10 attempts made"; "" where it is not, or the error says it

	// The message as first published and the work queue it failed in, resolved
	// from History and the delivery.
	Queue, Exchange, RoutingKey string

	// Room is how many bytes of WireSize the returned headers may take, since
	// a content header must fit into one frame; 0 means no limit. Bookkeeping
	// gives way (error texts first), user headers never do.
	Room int
}

// OriginAt returns where a delivery was first published: what the marks kept,
// else the delivery's own exchange and key.
func (h History) OriginAt(d Delivery) (exchange, key string) {
	if h.Queue == "" {
		return d.Exchange, d.RoutingKey
	}
	return h.Exchange, h.RoutingKey
}
