package failed

import (
	"math"
	"time"
)

// Outcome is the result of a message after a replay has sent it.
type Outcome string

// The outcomes of a message. Before a replay sends the message, its outcome is "".
const (
	OutcomePending     Outcome = "pending"      // no report yet
	OutcomeRetrying    Outcome = "retrying"     // the first attempt failed, and a retry follows
	OutcomeSettled     Outcome = "settled"      // no report, but its queues are empty: processed or dropped
	OutcomeSucceeded   Outcome = "succeeded"    // the handler returned nil
	OutcomeFailedAgain Outcome = "failed again" // in the archive again; replaces any other outcome
	OutcomeUnknown     Outcome = "unknown"      // no report requested, or none within VerifyTime
)

// VerifyTime specifies how long the archive waits for outcomes after a replay ends.
const VerifyTime = 24 * time.Hour

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{OutcomePending, OutcomeRetrying, OutcomeSettled, OutcomeSucceeded, OutcomeFailedAgain, OutcomeUnknown}
}

// Pending returns the number of messages with OutcomePending.
func (r *Replay) Pending() int64 {
	return max(0, r.Sent-r.Back-r.Succeeded-r.Settled-r.Retrying-r.Unknown)
}

// Plan specifies the messages, destination and pace of a replay.
type Plan struct {
	// Filter selects the messages. A replay includes only messages in state failed.
	Filter Filter

	// To is the destination. Nil: the work queue in which each message failed. If To is a queue whose messages are known
	// to arrive through an exchange, they are sent through this exchange, as Routing specifies.
	To *Target

	// ByQueueName permits sending messages by the name of their queue if no other route is known. By default, such
	// messages stay failed with a RouteError as the reason. See Destination.Warning for the risk.
	ByQueueName bool

	// Rate is the maximum number of messages per second. Default: 0 (no limit).
	Rate float64

	// Ramp increases the rate every 10 s: 1, 2, 5, 10 … messages per second, up to Rate. If Rate is 0, the rate becomes
	// unlimited after 10,000 messages per second.
	Ramp bool

	// Edit changes each message when the replay sends it. Nil: no changes.
	Edit *BulkEdit

	// Canary makes the replay send one message first and wait for its outcome. If the message succeeds, the replay
	// sends the others. If its first attempt fails, the replay stops. Canary is the maximum time to wait. A canary
	// without an outcome proves nothing, so the replay then stops, also if the workers of the queue never report outcomes.
	// Default: 0 (no canary).
	Canary time.Duration

	// IgnoreSame lets the replay continue if a message fails again with its previous fingerprint or, with Ramp, if the
	// first attempt of a message fails. By default, the replay then stops.
	IgnoreSame bool
}

// Target is an exchange and a routing key.
type Target struct{ Exchange, RoutingKey string }

// ReplayState is the state of a replay.
type ReplayState string

// The states of a replay.
const (
	ReplayRunning    ReplayState = "running"
	ReplayCancelling ReplayState = "cancelling" // by an operator; messages may still be in flight
	ReplayDone       ReplayState = "done"       // all messages are sent or refused
	ReplayCancelled  ReplayState = "cancelled"  // by an operator
	ReplayStopped    ReplayState = "stopped"    // by the Replayer, see Replay.Why
)

// Replay is a set of messages to publish again, with its progress.
type Replay struct {
	ID    ReplayID
	Plan  Plan
	State ReplayState
	Why   string // reason for cancelling or stopping, or the first refusal
	Actor Actor  // the user who began the replay
	Begun time.Time
	Ended time.Time // zero while the replay runs

	Total   int64 // number of selected messages
	Sent    int64 // sent and confirmed
	Refused int64 // cannot be sent, see Message.Refused

	// Counts of sent messages by outcome, see Outcome.
	Back      int64 // failed again
	Succeeded int64
	Settled   int64
	Retrying  int64
	Unknown   int64

	// Verifying reports whether the state is ReplayDone, some outcomes are pending or retrying, and VerifyTime has not
	// elapsed.
	Verifying bool
}

// Left returns the number of messages that are neither sent nor refused.
func (r *Replay) Left() int64 { return r.Total - r.Sent - r.Refused }

// Validate returns ErrInvalid for invalid fields.
func (p Plan) Validate() error {
	if p.Rate < 0 || math.IsNaN(p.Rate) || math.IsInf(p.Rate, 0) {
		return Invalid("Plan.Rate must be a finite number of messages per second, not negative: got %v (0 means no limit)", p.Rate)
	}
	if p.To != nil && *p.To == (Target{}) {
		return Invalid("Plan.To must have a routing key or an exchange (nil means the queue that each message failed in)")
	}
	if p.Canary < 0 {
		return Invalid("Plan.Canary must not be negative: got %s (0 means no canary)", p.Canary)
	}
	if p.Edit != nil {
		return p.Edit.Validate()
	}
	return nil
}
