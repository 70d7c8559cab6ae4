package jsonapi

import (
	"fmt"
	"strconv"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/brief"
)

func scheduled(c *web.Call, p store.Page) (v api.ScheduledPage, err error) {
	f, err := api.ParseScheduledFilter(web.Only(c.Params, api.ScheduledNames), c.Clock())
	if err != nil {
		return v, fault.BadFilter(err)
	}
	return c.Scheduled(f, p)
}

// actOnScheduled returns an endpoint that cancels or moves messages of the outbox.
func actOnScheduled(move bool) Endpoint {
	return asked(func(c *web.Call, a api.ScheduledAct) (done api.ScheduledDone, err error) {
		if done.DryRun, err = c.Flag("dry_run"); err != nil {
			return done, err
		}
		if err := a.Validate(); err != nil {
			return done, err
		}
		if !move && (!a.At.IsZero() || a.In != 0) {
			return done, fault.BadRequest("at and in must not be set", "nothing was changed")
		}
		if done.DryRun {
			n, through, err := c.CountScheduled(a.Filter)
			done.Selected, done.Through = int64(n), through
			return done, err
		}
		return c.ActOnScheduled(a, move)
	})
}

func cron(c *web.Call) (v api.Cron, err error) {
	n := 1
	if text := c.Params.Get("count"); text != "" {
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > web.MaxOccurrences {
			return v, fault.BadRequest(fmt.Sprintf("count must be an integer from 1 to %d: got %s", web.MaxOccurrences, brief.Quoted(text)), "correct the parameter")
		}
	}
	return c.Cron(n)
}
