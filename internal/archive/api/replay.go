package api

import (
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/replay"
)

// Plan specifies the messages and the settings of a replay. Rate is in messages per second; 0: no limit.
type Plan struct {
	failed.Selection
	To         *Target   `json:"to,omitempty"`   // absent: the work queue in which each message failed
	Edit       *BulkEdit `json:"edit,omitempty"` // absent: messages are sent unchanged
	Rate       float64   `json:"rate,omitempty"`
	Ramp       bool      `json:"ramp,omitempty"`   // increase the rate in steps up to Rate: 1, 2, 5, 10 and so on per second
	Canary     Duration  `json:"canary,omitempty"` // send one message first and wait at most this long for its outcome
	IgnoreSame bool      `json:"ignore_same,omitempty"`

	// ByQueueName permits sending messages by the name of their queue; see failed.Plan.
	ByQueueName bool `json:"by_queue_name,omitempty"`
}

// Target is the destination of messages. Exchange "" is the default exchange, which routes to the queue with the name
// RoutingKey.
type Target struct {
	Exchange   Text `json:"exchange"`
	RoutingKey Text `json:"routing_key"`
}

// Plan converts p to a [failed.Plan].
func (p Plan) Plan() failed.Plan {
	plan := failed.Plan{
		Filter: p.Selected(), Rate: p.Rate, Ramp: p.Ramp, Canary: time.Duration(p.Canary), IgnoreSame: p.IgnoreSame, Edit: p.Edit.BulkEdit(),
		ByQueueName: p.ByQueueName,
	}
	if p.To != nil {
		plan.To = &failed.Target{Exchange: string(p.To.Exchange), RoutingKey: string(p.To.RoutingKey)}
	}
	return plan
}

// PlanOf converts a plan to its JSON form.
func PlanOf(p failed.Plan) Plan {
	return Plan{
		Selection: failed.SelectionOf(p.Filter), To: TargetOf(p.To),
		Rate: p.Rate, Ramp: p.Ramp, Canary: Duration(p.Canary), IgnoreSame: p.IgnoreSame, Edit: BulkEditOf(p.Edit),
		ByQueueName: p.ByQueueName,
	}
}

// TargetOf converts a target to its JSON form. The result is nil if t is nil.
func TargetOf(t *failed.Target) *Target {
	if t == nil {
		return nil
	}
	return &Target{Text(t.Exchange), Text(t.RoutingKey)}
}

// Preview describes the effect of a replay.
type Preview struct {
	Done
	Destinations []Destination `json:"destinations"` // most messages first
	Edit         *EditPreview  `json:"edit,omitempty"`
	Lost         []EditReason  `json:"lost,omitempty"` // why the replay would refuse messages, which their consumers would lose
}

// Destination is the destination of messages from one failed queue.
type Destination struct {
	Target
	FailedQueue Text  `json:"failed_queue"`
	Messages    int64 `json:"messages"`
	Unknown     bool  `json:"unknown,omitempty"` // the work queue is unknown, so the messages would not be sent

	// Queue is the work queue of the messages. Keys reports whether the messages have different routing keys; each
	// message then keeps its key. Route specifies how the target is known. Warning is set if only the name of Queue
	// leads to it, and Refused if the messages would therefore not be sent; see replay.Destination.
	Queue   Text   `json:"queue,omitempty"`
	Keys    bool   `json:"keys,omitempty"`
	Route   string `json:"route,omitempty"`
	Warning string `json:"warning,omitempty"`
	Refused bool   `json:"refused,omitempty"`
}

// PreviewOf converts destinations to a preview.
func PreviewOf(all []replay.Destination) Preview {
	p := Preview{Done: Done{DryRun: true}, Destinations: make([]Destination, len(all))}
	for i, d := range all {
		p.Messages += d.Messages
		p.Destinations[i] = Destination{
			Target: Target{Text(d.Exchange), Text(d.RoutingKey)}, FailedQueue: Text(d.FailedQueue), Messages: d.Messages, Unknown: d.Unknown,
			Queue: Text(d.Queue), Keys: d.Keys, Route: d.Route, Warning: d.Warning, Refused: d.Refused,
		}
	}
	return p
}

// Replay is a replay of selected messages.
type Replay struct {
	ID      int64     `json:"id"`
	Plan    Plan      `json:"plan"`
	State   string    `json:"state"` // running, cancelling, done, cancelled or stopped
	Why     string    `json:"why,omitempty"`
	Actor   string    `json:"actor"`
	Begun   time.Time `json:"begun"`
	Ended   time.Time `json:"ended,omitzero"`
	Total   int64     `json:"total"` // selected messages
	Sent    int64     `json:"sent"`
	Refused int64     `json:"refused"` // messages that can never be sent

	// Outcomes of the sent messages.
	Back      int64 `json:"back"` // failed again
	Succeeded int64 `json:"succeeded"`
	Settled   int64 `json:"settled"` // no report, but the queues were found empty
	Retrying  int64 `json:"retrying"`
	Unknown   int64 `json:"unknown"`
	Verifying bool  `json:"verifying"` // the replay is done, but some outcomes are still pending or retrying
}

// Replays is one page of a list of replays.
type Replays struct {
	Replays []Replay `json:"replays"`
	Next    string   `json:"next,omitempty"`
}

// ReplayOf converts a replay to its JSON form.
func ReplayOf(r failed.Replay) Replay {
	return Replay{
		ID: int64(r.ID), Plan: PlanOf(r.Plan), State: string(r.State), Why: r.Why, Actor: string(r.Actor),
		Begun: r.Begun, Ended: r.Ended, Total: r.Total, Sent: r.Sent, Refused: r.Refused, Back: r.Back,
		Succeeded: r.Succeeded, Settled: r.Settled, Retrying: r.Retrying, Unknown: r.Unknown, Verifying: r.Verifying,
	}
}
