package topology

import (
	"errors"
	"time"
)

// Strategy decides how a failed message is retried or parked: Route selects the path of its copies,
// and Marks selects the headers written to them. A Strategy only computes addresses and headers;
// package reprise performs the I/O.
//
// The zero value is the default: Buckets and Trail. Either field can be nil.
type Strategy struct {
	Route Route
	Marks Marks // default: the Marks of the Route, or Trail{}
}

// WithDefaults returns s with nil fields replaced. The default Route is Buckets{}. If the Route has a method Marks() Marks,
// its result is the default Marks. Otherwise, if the Route has a method Unwrap() Route, the method Marks of the innermost
// Route applies. If no such method exists, or if its result is nil, the default Marks are Trail{}.
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

// marksOf returns the Marks that the route or its innermost route requires, or nil.
func marksOf(r Route) Marks {
	for _, r := range []Route{r, unwrap(r)} {
		if asks, ok := r.(interface{ Marks() Marks }); ok {
			return asks.Marks()
		}
	}
	return nil
}

// unwrap returns the innermost route. The routes of package preset wrap another route.
func unwrap(r Route) Route {
	for {
		around, ok := r.(interface{ Unwrap() Route })
		if !ok {
			return r
		}
		r = around.Unwrap()
	}
}

// Validate reports invalid settings of the Route or the Marks. It also reports Marks of this package that cannot count the
// attempts of a Route such as Requeuing, in which the broker returns the message instead of a copy with headers. If a Route
// or Marks of another package have a method Validate() error, Validate calls it.
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

// ValidateQueue returns an error if the strategy cannot serve a work queue. If a Route of another package has a method
// ValidateQueue(string) error, ValidateQueue calls it.
func (s Strategy) ValidateQueue(queue string) error {
	if v, ok := s.WithDefaults().Route.(interface{ ValidateQueue(string) error }); ok {
		return v.ValidateQueue(queue)
	}
	return nil
}

// Route is the path of the copies of a failed message. Implementations must be pure and safe for
// concurrent use.
//
// A Route that does not publish copies cannot write headers, so it should have a method Marks() Marks that returns the Marks
// that count its attempts.
type Route interface {
	// Topology returns the topology that must exist before the work queue is consumed.
	Topology(queue string) Topology

	// Wait returns the first hop of a copy that returns to d.Queue after delay, and not earlier. A route with its own
	// delays, or with a maximum below delay, may use another delay, which it returns in Hop.Delay. If Wait returns an
	// error, the worker parks the message with this error instead of retrying it.
	Wait(d Delivery, delay time.Duration) (Hop, error)

	// Failed returns the hop of a copy that is parked.
	Failed(d Delivery) Hop
}

// Delivery is a message that the broker delivered from the work queue.
type Delivery struct {
	Queue       string // the work queue
	Source      string // the lane that delivered the message: see Lanes; "" if Queue has none
	Exchange    string // as delivered; often "" after a retry, see History
	RoutingKey  string // as delivered
	Redelivered bool
	Headers     Table // all headers, including bookkeeping and x-death
}

// Marks write bookkeeping headers on each copy of a message, and read them when the copy is delivered.
// Implementations must be pure and safe for concurrent use, and must not change the tables that they
// receive. They must tolerate all header values, because any publisher can write them.
type Marks interface {
	// Read returns the bookkeeping of earlier attempts in the headers of d.
	Read(d Delivery) History

	// Retry returns the headers of a copy for a retry.
	Retry(headers Table, f Failure) Table

	// Park returns the headers of a copy for the failed queue.
	Park(headers Table, f Failure) Table

	// Owns reports whether a header is bookkeeping. Handlers do not receive bookkeeping headers, and a replay of a parked
	// message removes them.
	Owns(header string) bool
}

// Undecided is the value of History.RetriesLeft if the marks do not count down. In this case, the Policy of the worker
// decides.
const Undecided = -1

// History is the record of the earlier attempts to process a message.
type History struct {
	Attempts    int // number of attempts before this delivery
	RetriesLeft int // number of permitted retries after this attempt, or Undecided

	// Work queue in which the message failed, and exchange and routing key of the first publish. If the marks did not
	// record them, Queue is "", and the exchange and the routing key of the delivery apply: see OriginAt.
	Queue, Exchange, RoutingKey string

	FirstFailed   time.Time      // zero if the message has not failed yet, or if the time is unknown
	Errors        []AttemptError // oldest first
	ErrorsDropped int            // number of omitted errors between the first and the second of Errors
}

// AttemptError describes a failed attempt. A field is zero if its value was not recorded.
type AttemptError struct {
	Attempt  int           // from 1
	Time     time.Time     // end of the attempt; whole seconds
	Error    string        // possibly truncated
	Host     string        // host of the handler
	Duration time.Duration // run time of the handler; whole milliseconds
}

// Failure describes a failed attempt, and is the input of Marks.
type Failure struct {
	AttemptError         // the attempt that failed
	History      History // result of Read
	Uncounted    bool    // the attempt does not count: Attempt is History.Attempts, and Marks keep their number and their errors
	Reason       string  // reason for parking, such as "10 attempts made"; "" for a retry or if the error is the reason

	// Work queue in which the message failed, and exchange and routing key of the first publish, from History or, if it
	// does not contain them, from the delivery.
	Queue, Exchange, RoutingKey string

	// Room is the maximum WireSize of the returned headers in bytes, because a content header must fit into one frame; 0
	// means no limit. If necessary, Marks shorten or drop bookkeeping headers, starting with error texts. They never drop
	// other headers.
	Room int
}

// OriginAt returns the exchange and the routing key of the first publish. If the marks did not record them, OriginAt returns
// the exchange and the routing key of d.
func (h History) OriginAt(d Delivery) (exchange, key string) {
	if h.Queue == "" {
		return d.Exchange, d.RoutingKey
	}
	return h.Exchange, h.RoutingKey
}
