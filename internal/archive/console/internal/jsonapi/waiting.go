package jsonapi

import (
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/archive/waiting"
)

func waitingFilter(c *web.Call) (store.WaitingFilter, error) {
	f, err := store.ParseWaitingFilter(web.Only(c.Params, store.WaitingNames), c.Clock())
	if err != nil {
		err = fault.BadFilter(err)
	}
	return f, err
}

func waitingMessages(c *web.Call, p store.Page) (v api.WaitingPage, err error) {
	f, err := waitingFilter(c)
	if err != nil {
		return v, err
	}
	list, next, err := c.Archive.Waiting(c.R.Context(), f, p)
	return api.WaitingPage{Messages: listed(list), Next: next}, err
}

func waitingSummary(c *web.Call) (s api.WaitingSummary, err error) {
	f, err := waitingFilter(c)
	if err != nil {
		return s, err
	}
	return c.WaitingSummary(f)
}

// actOnWaiting returns an endpoint for an action on waiting messages.
func actOnWaiting(do waiting.Do) Endpoint {
	return asked(func(c *web.Call, a waiting.Act) (done api.WaitingDone, err error) {
		if done.DryRun, err = c.Flag("dry_run"); err != nil {
			return done, err
		}
		a.Do = do
		if err := web.CheckWaiting(a); err != nil {
			return done, err
		}
		if done.DryRun {
			n, err := c.Archive.CountWaiting(c.R.Context(), a.Filter)
			done.Selected, done.Refused = n.Messages, []waiting.WaitingRefusal{}
			return done, err
		}
		done.Result, err = c.ActOnWaiting(a)
		done.Refused = listed(done.Refused)
		return done, err
	})
}
