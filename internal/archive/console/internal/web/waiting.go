package web

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/archive/waiting"
)

// Rescheduler acts on waiting messages.
type Rescheduler interface {
	Act(ctx context.Context, act waiting.Act, who failed.Actor) (waiting.Result, error)
}

// WaitingSummary counts the waiting messages by queue and by group.
func (c *Call) WaitingSummary(f store.WaitingFilter) (s api.WaitingSummary, err error) {
	ctx, a := c.R.Context(), c.Archive
	if s.Counts, err = a.CountWaiting(ctx, f); err != nil {
		return s, err
	}
	queues, err := a.WaitingQueues(ctx, f)
	if err != nil {
		return s, err
	}
	groups, err := a.WaitingGroups(ctx, f)
	if err != nil {
		return s, err
	}
	s.Queues, s.Groups = append([]store.WaitingQueue{}, queues...), append([]store.WaitingGroup{}, groups...)
	reports, err := a.WaitingReports(ctx)
	if err != nil {
		return s, err
	}
	s.Missing = reports.Missing
	for _, w := range c.Workers().Workers {
		queue, list := api.Text(w.Queue), &s.Silent
		if w.Keys != nil {
			list = &s.Keyed
		}
		waits := w.Keys == nil && w.Counts.Retried > 0 && !reports.Reports(w.Queue) || w.Keys != nil && w.Keys.Blocked > 0
		if waits && !slices.Contains(*list, queue) {
			*list = append(*list, queue)
		}
	}
	if r, ok := c.Rescheduler.(interface{ Blocked() []waiting.BlockedQueue }); ok {
		for _, b := range r.Blocked() {
			s.Blocked = append(s.Blocked, api.WaitingBlocked{
				Queue: api.Text(b.Queue), WaitQueue: api.Text(b.WaitQueue), Messages: b.Messages, Cause: api.Text(b.Cause()), Remedy: api.Text(b.Remedy()),
			})
		}
	}
	if c.Rescheduler == nil {
		s.Problem = "this console does not listen to workers"
	}
	return s, nil
}

// actTimeout limits the duration of an act on waiting messages, which continues if the visitor disconnects.
const actTimeout = 5 * time.Minute

// ActOnWaiting acts on waiting messages. If the act fails partway, the result counts the messages processed before the
// error and contains the error as a refusal.
func (c *Call) ActOnWaiting(act waiting.Act) (waiting.Result, error) {
	if c.Rescheduler == nil {
		return waiting.Result{}, &fault.Failure{
			Status: http.StatusServiceUnavailable, Text: "this console is not connected to a broker", Advice: "start it with a broker: reprise console --url URL",
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.R.Context()), actTimeout)
	defer cancel()
	res, err := c.Rescheduler.Act(ctx, act, c.Who.Actor)
	if err != nil && res.Selected > 0 { // res.Refused reports the remaining messages
		res.Refused = append(res.Refused, waiting.WaitingRefusal{Why: "stopped early: " + err.Error()})
		err = nil
	}
	return res, err
}

// CheckWaiting returns an error if the act is invalid. It does not read the archive.
func CheckWaiting(act waiting.Act) error {
	if err := act.Validate(); err != nil {
		return fault.BadRequest(err.Error(), "no message was changed")
	}
	return nil
}
