package failed

import (
	"fmt"
	"math"
	"time"
)

// Plan says what to replay and how.
type Plan struct {
	// Filter selects the messages, of those in state failed.
	Filter Filter

	// To is where they are sent. Nil: to the work queue that each failed in.
	To *Target

	// Rate is the most messages to send per second. 0: no limit.
	Rate float64

	// Ramp begins with one message per second, then 2, 5, 10 and so on up to Rate,
	// or without an end.
	Ramp bool

	// Canary makes the replay send one message first, and wait for so long whether it
	// comes back before it sends the others. 0: no canary.
	Canary time.Duration

	// IgnoreSame lets the replay go on although messages come back with a fingerprint
	// that they had before. By default it stops by itself.
	IgnoreSame bool
}

// Target is an exchange and a routing key.
type Target struct{ Exchange, RoutingKey string }

// ReplayState is how far a replay is.
type ReplayState string

// The states of a replay.
const (
	ReplayRunning    ReplayState = "running"
	ReplayCancelling ReplayState = "cancelling" // by a person; what is on its way is waited for
	ReplayDone       ReplayState = "done"       // all has been sent that can be
	ReplayCancelled  ReplayState = "cancelled"  // by a person
	ReplayStopped    ReplayState = "stopped"    // by itself: Replay.Why says why
)

// Replay is a selection of messages on their way back.
type Replay struct {
	ID    ReplayID
	Plan  Plan
	State ReplayState
	Why   string // it was cancelled or stopped, or the first that is Refused
	Actor Actor  // who began it
	Begun time.Time
	Ended time.Time // zero while it runs

	Total   int64 // messages selected
	Sent    int64 // of them, sent and confirmed
	Refused int64 // of them, such as can never be sent: Message.Refused says why
	Back    int64 // of those sent, known to have failed again
}

// Left is how many messages are neither sent nor refused.
func (r *Replay) Left() int64 { return r.Total - r.Sent - r.Refused }

// validate reports what cannot be done.
func (p Plan) validate() error {
	if p.Rate < 0 || math.IsNaN(p.Rate) || math.IsInf(p.Rate, 0) {
		return fmt.Errorf("%w: Plan.Rate %v: use messages per second, or 0 for no limit", ErrInvalid, p.Rate)
	}
	if p.To != nil && *p.To == (Target{}) {
		return fmt.Errorf("%w: Plan.To is empty: name a routing key, and an exchange unless it is a queue; or leave it nil for the queue that each message failed in", ErrInvalid)
	}
	if p.Canary < 0 {
		return fmt.Errorf("%w: Plan.Canary %s is negative: use 0 for none", ErrInvalid, p.Canary)
	}
	return nil
}
