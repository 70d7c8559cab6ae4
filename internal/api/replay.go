package api

import (
	"fmt"
	"time"

	"github.com/reprisemq/reprise/failed"
)

// Plan says what to replay and how. Rate is per second; 0: no limit.
type Plan struct {
	Selection
	To         *Target   `json:"to,omitempty"`   // none: the work queue that each failed in
	Edit       *BulkEdit `json:"edit,omitempty"` // none: they are sent as they are
	Rate       float64   `json:"rate,omitempty"`
	Ramp       bool      `json:"ramp,omitempty"`   // 1, 2, 5, 10 and so on per second, up to Rate
	Canary     Duration  `json:"canary,omitempty"` // send one, and wait for its outcome, at most so long
	IgnoreSame bool      `json:"ignore_same,omitempty"`
}

// Target is where messages are sent. Exchange "" is the default exchange: it routes to
// the queue named by RoutingKey.
type Target struct {
	Exchange   Text `json:"exchange"`
	RoutingKey Text `json:"routing_key"`
}

// Plan returns it as package failed has it.
func (p Plan) Plan() failed.Plan {
	plan := failed.Plan{
		Filter: p.Selected(), Rate: p.Rate, Ramp: p.Ramp, Canary: time.Duration(p.Canary), IgnoreSame: p.IgnoreSame, Edit: p.Edit.BulkEdit(),
	}
	if p.To != nil {
		plan.To = &failed.Target{Exchange: string(p.To.Exchange), RoutingKey: string(p.To.RoutingKey)}
	}
	return plan
}

// PlanOf returns a plan as it is shown.
func PlanOf(p failed.Plan) Plan {
	f := p.Filter
	f.All, f.AtMost = false, 0
	return Plan{
		Selection: Selection{Filter: f, All: f.IsZero(), AtMost: p.Filter.AtMost}, To: TargetOf(p.To),
		Rate: p.Rate, Ramp: p.Ramp, Canary: Duration(p.Canary), IgnoreSame: p.IgnoreSame, Edit: BulkEditOf(p.Edit),
	}
}

// TargetOf returns a target as it is shown; nil, if there is none.
func TargetOf(t *failed.Target) *Target {
	if t == nil {
		return nil
	}
	return &Target{Text(t.Exchange), Text(t.RoutingKey)}
}

// Preview is what a replay would do.
type Preview struct {
	Done
	Destinations []Destination `json:"destinations"` // the most messages first
	Edit         *EditPreview  `json:"edit,omitempty"`
}

// Destination is where messages would be sent that were taken from a failed queue.
type Destination struct {
	Target
	FailedQueue Text  `json:"failed_queue"`
	Messages    int64 `json:"messages"`
	Unknown     bool  `json:"unknown,omitempty"` // nobody knows in which queue they failed: they would stay

	// Queue is the work queue that the target leads to. Keys: they are sent with more than one
	// routing key, each with its own. Warning says what other programs see of a message that is
	// sent by the name of its queue.
	Queue   Text   `json:"queue,omitempty"`
	Keys    bool   `json:"keys,omitempty"`
	Warning string `json:"warning,omitempty"`
}

// PreviewOf returns destinations as they are shown.
func PreviewOf(all []failed.Destination) Preview {
	p := Preview{Done: Done{DryRun: true}, Destinations: make([]Destination, len(all))}
	for i, d := range all {
		p.Messages += d.Messages
		p.Destinations[i] = Destination{
			Target: Target{Text(d.Exchange), Text(d.RoutingKey)}, FailedQueue: Text(d.FailedQueue), Messages: d.Messages, Unknown: d.Unknown,
			Queue: Text(d.Queue), Keys: d.Keys, Warning: d.Warning,
		}
	}
	return p
}

// Replay is a selection of messages on their way back.
type Replay struct {
	ID      int64     `json:"id"`
	Plan    Plan      `json:"plan"`
	State   string    `json:"state"` // running, cancelling, done, cancelled or stopped
	Why     string    `json:"why,omitempty"`
	Actor   string    `json:"actor"`
	Begun   time.Time `json:"begun"`
	Ended   time.Time `json:"ended,omitzero"`
	Total   int64     `json:"total"` // messages selected
	Sent    int64     `json:"sent"`
	Refused int64     `json:"refused"` // such as can never be sent

	// Outcomes of those sent.
	Back      int64 `json:"back"` // failed again
	Succeeded int64 `json:"succeeded"`
	Settled   int64 `json:"settled"` // no report, and their queues were found empty
	Retrying  int64 `json:"retrying"`
	Unknown   int64 `json:"unknown"`
	Verifying bool  `json:"verifying"` // it is done, and not all outcomes are known
}

// Replays are a page of a list.
type Replays struct {
	Replays []Replay `json:"replays"`
	Next    string   `json:"next,omitempty"`
}

// ReplayOf returns a replay as it is shown.
func ReplayOf(r failed.Replay) Replay {
	return Replay{
		ID: int64(r.ID), Plan: PlanOf(r.Plan), State: string(r.State), Why: r.Why, Actor: string(r.Actor),
		Begun: r.Begun, Ended: r.Ended, Total: r.Total, Sent: r.Sent, Refused: r.Refused, Back: r.Back,
		Succeeded: r.Succeeded, Settled: r.Settled, Retrying: r.Retrying, Unknown: r.Unknown, Verifying: r.Verifying,
	}
}

// Duration is a time.Duration, in JSON as Go writes it: "1m30s".
type Duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%.40q is no duration: write it as 90s, 1m30s or 2h", text)
	}
	*d = Duration(parsed)
	return nil
}
