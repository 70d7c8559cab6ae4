package waiting

import (
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/topology"
)

// Do is an action on waiting messages.
type Do string

// The actions on waiting messages.
const (
	RetryNow Do = "retry"    // The broker delivers the messages now, as if they were due.
	Postpone Do = "postpone" // The messages wait for Act.Delay from now. The number of attempts does not change.
	ParkNow  Do = "park"     // The messages move to the failed queue, as if a worker had parked them.
)

// Act describes an action on waiting messages.
type Act struct {
	Do     Do                  `json:"-"`
	Filter store.WaitingFilter `json:"filter"`
	All    bool                `json:"all,omitempty"`     // required if the filter selects all messages
	AtMost int64               `json:"at_most,omitempty"` // if more messages are selected, the act changes nothing; 0: no limit
	Delay  params.Duration     `json:"delay,omitempty"`   // for postpone only: from 1s to the maximum delay of a retry
	Reason string              `json:"reason,omitempty"`  // for the audit log; park also includes it in the header x-reprise-reason; optional
}

// MinPostpone is the minimum of Act.Delay.
const MinPostpone = time.Second

const maxActReason = 1000 // bytes

// Validate reports missing and invalid fields.
func (a Act) Validate() error {
	switch delay := time.Duration(a.Delay); {
	case a.Do != RetryNow && a.Do != Postpone && a.Do != ParkNow:
		return failed.Invalid("Act.Do must be %s, %s or %s: got %s", RetryNow, Postpone, ParkNow, brief.Quoted(string(a.Do)))
	case a.Do == Postpone && (delay < MinPostpone || delay > topology.MaxDelay):
		return failed.Invalid("Act.Delay must be from %s to %s: got %s", MinPostpone, topology.MaxDelay, delay)
	case a.Do != Postpone && a.Delay != 0:
		return failed.Invalid("Act.Delay must not be set unless Do is %s", Postpone)
	case a.AtMost < 0:
		return failed.Invalid("Act.AtMost must not be negative: got %d", a.AtMost)
	case len(a.Reason) > maxActReason:
		return failed.Invalid("Act.Reason must have at most %[2]d bytes: got %[1]d", len(a.Reason), maxActReason)
	case a.Filter.IsZero() && !a.All:
		return failed.Invalid("Act.All must be set to select all waiting messages")
	case a.All && !a.Filter.IsZero():
		return failed.Invalid("Act.All must not be combined with a filter")
	}
	return a.Filter.Validate()
}

// Result is the result of an act. Selected is the sum of the other numbers.
type Result struct {
	Selected int64            `json:"selected"`
	Done     int64            `json:"done"`   // Moved to the work queue, a wait queue or the failed queue.
	Gone     int64            `json:"gone"`   // Not found in the wait queue, because they became due or another act moved them.
	Unsure   int64            `json:"unsure"` // Result unknown, because the connection failed. Copied messages may be duplicated.
	Refused  []WaitingRefusal `json:"refused"`
}

// WaitingRefusal is the reason why an act left messages unchanged.
type WaitingRefusal struct {
	Why      string `json:"why"`
	Messages int64  `json:"messages"`
}

func (r *Result) refuse(why string, n int) {
	if n == 0 {
		return
	}
	for i := range r.Refused {
		if r.Refused[i].Why == why {
			r.Refused[i].Messages += int64(n)
			return
		}
	}
	r.Refused = append(r.Refused, WaitingRefusal{why, int64(n)})
}

var verbsOfWaiting = map[Do]string{RetryNow: "retry now", Postpone: "postpone", ParkNow: "park"}

func subjectOf(f store.WaitingFilter) string {
	if len(f.IDs) == 1 {
		return fmt.Sprintf("waiting/%d", f.IDs[0])
	}
	return ""
}

func (a Act) details() map[string]any {
	d := map[string]any{}
	set := func(name string, value any, isSet bool) {
		if isSet {
			d[name] = value
		}
	}
	f := a.Filter
	set("queue", f.Queue, f.Queue != "")
	set("group", f.Group, f.Group != "")
	set("attempt", f.Attempt, f.Attempt != 0)
	set("before", f.Before, !f.Before.IsZero())
	set("error", f.Error, f.Error != "")
	set("ids", len(f.IDs), f.IDs != nil)
	set("all", true, a.All)
	set("delay", a.Delay.String(), a.Delay != 0)
	set("reason", a.Reason, a.Reason != "")
	return d
}

func (r Result) details() map[string]any {
	d := map[string]any{"done": r.Done, "gone": r.Gone}
	if r.Unsure > 0 {
		d["unsure"] = r.Unsure
	}
	for _, x := range r.Refused {
		d["refused: "+x.Why] = x.Messages
	}
	return d
}
