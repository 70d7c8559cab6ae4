package jsonapi

import (
	"net/http"

	"github.com/reprisemq/reprise/console/internal/fault"
	"github.com/reprisemq/reprise/console/internal/web"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

func replays(c *web.Call) error {
	p, err := c.Page()
	if err != nil {
		return err
	}
	replays, next, err := c.Archive.Replays(c.R.Context(), p)
	if err != nil {
		return err
	}
	return c.OK(api.Replays{Replays: convert(replays, api.ReplayOf), Next: string(next)})
}

func replay(c *web.Call) error {
	id, err := id(c)
	if err != nil {
		return err
	}
	return showReplay(c, failed.ReplayID(id))
}

func showReplay(c *web.Call, id failed.ReplayID) error {
	r, err := c.Archive.Replay(c.R.Context(), id)
	if err != nil {
		return err
	}
	return c.OK(api.ReplayOf(*r))
}

func beginReplay(c *web.Call) error {
	isDryRun, err := c.IsDryRun()
	if err != nil {
		return err
	}
	var plan api.Plan
	if err := c.Read(&plan); err != nil {
		return err
	}
	if _, err := actOn(c, plan.Selection); err != nil {
		return err
	}
	if plan.Rate < 0 || plan.Canary < 0 {
		return fault.BadRequest("rate or canary is negative", "leave them out for no limit and no canary")
	}
	if isDryRun {
		destinations, err := c.Archive.Destinations(c.R.Context(), plan.Plan(), c.Routing)
		if err != nil {
			return err
		}
		return c.OK(api.PreviewOf(destinations))
	}
	r, err := c.Begin(plan.Plan())
	if err != nil {
		return err
	}
	return c.Write(http.StatusCreated, api.ReplayOf(*r))
}

func cancel(c *web.Call) error {
	id, err := id(c)
	if err != nil {
		return err
	}
	var cancel api.Cancel
	if err := c.Read(&cancel); err != nil {
		return err
	}
	err = c.Archive.EndReplay(c.R.Context(), failed.ReplayID(id), failed.ReplayCancelled, cancel.Reason, c.Who.Actor)
	if err != nil {
		return err
	}
	return showReplay(c, failed.ReplayID(id))
}
