package console

import (
	"net/http"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

func (c *call) apiReplays() error {
	p, err := c.page()
	if err != nil {
		return err
	}
	replays, next, err := c.cfg.Archive.Replays(c.r.Context(), p)
	if err != nil {
		return err
	}
	return c.ok(api.Replays{Replays: convert(replays, api.ReplayOf), Next: string(next)})
}

func (c *call) apiReplay() error {
	id, err := c.id()
	if err != nil {
		return err
	}
	return c.showReplay(failed.ReplayID(id))
}

func (c *call) showReplay(id failed.ReplayID) error {
	r, err := c.cfg.Archive.Replay(c.r.Context(), id)
	if err != nil {
		return err
	}
	return c.ok(api.ReplayOf(*r))
}

func (c *call) apiBeginReplay() error {
	isDryRun, err := c.isDryRun()
	if err != nil {
		return err
	}
	var plan api.Plan
	if err := c.read(&plan); err != nil {
		return err
	}
	if _, err := c.actOn(plan.Selection); err != nil {
		return err
	}
	if plan.Rate < 0 || plan.Canary < 0 {
		return badRequest("rate or canary is negative", "leave them out for no limit and no canary")
	}
	if isDryRun {
		destinations, err := c.cfg.Archive.Destinations(c.r.Context(), plan.Plan(), c.cfg.Routing)
		if err != nil {
			return err
		}
		return c.ok(api.PreviewOf(destinations))
	}
	r, err := c.begin(plan.Plan())
	if err != nil {
		return err
	}
	return c.write(http.StatusCreated, api.ReplayOf(*r))
}

func (c *call) apiCancel() error {
	id, err := c.id()
	if err != nil {
		return err
	}
	var cancel api.Cancel
	if err := c.read(&cancel); err != nil {
		return err
	}
	err = c.cfg.Archive.EndReplay(c.r.Context(), failed.ReplayID(id), failed.ReplayCancelled, cancel.Reason, c.who.actor)
	if err != nil {
		return err
	}
	return c.showReplay(failed.ReplayID(id))
}
