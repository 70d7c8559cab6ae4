package jsonapi

import (
	"github.com/reprisemq/reprise/console/internal/fault"
	"github.com/reprisemq/reprise/console/internal/web"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

// actOn returns the filter of a valid selection.
func actOn(c *web.Call, s api.Selection) (failed.Filter, error) {
	if err := s.Validate(); err != nil {
		return failed.Filter{}, fault.BadRequest(err.Error(), "correct the selection; nothing was changed")
	}
	f := s.Selected()
	return f, c.Archive.Check(c.R.Context(), f)
}

// countIn counts the messages for which an act would be done.
func countIn(c *web.Call, f failed.Filter, state failed.State) error {
	n, err := c.Archive.CountState(c.R.Context(), f, state)
	if err != nil {
		return err
	}
	return c.OK(api.Done{Messages: n, DryRun: true})
}

func discard(c *web.Call) error {
	isDryRun, err := c.IsDryRun()
	if err != nil {
		return err
	}
	var d api.Discard
	if err := c.Read(&d); err != nil {
		return err
	}
	f, err := actOn(c, d.Selection)
	switch {
	case err != nil:
		return err
	case isDryRun:
		return countIn(c, f, failed.Failed)
	case d.Reason == "":
		return fault.BadRequest("there is no reason", `send "reason": what to tell who asks why they were discarded`)
	}
	n, err := c.Archive.Discard(c.R.Context(), f, d.Reason, c.Who.Actor)
	if err != nil {
		return err
	}
	return c.OK(api.Done{Messages: n})
}

func restore(c *web.Call) error {
	isDryRun, err := c.IsDryRun()
	if err != nil {
		return err
	}
	var s api.Selection
	if err := c.Read(&s); err != nil {
		return err
	}
	f, err := actOn(c, s)
	switch {
	case err != nil:
		return err
	case isDryRun:
		return countIn(c, f, failed.Discarded)
	}
	n, err := c.Archive.Restore(c.R.Context(), f, c.Who.Actor)
	if err != nil {
		return err
	}
	return c.OK(api.Done{Messages: n})
}

// purge removes what the archive's retention says.
func purge(c *web.Call) error {
	isDryRun, err := c.IsDryRun()
	if err != nil {
		return err
	}
	if isDryRun {
		n, err := c.Archive.WouldPurge(c.R.Context())
		if err != nil {
			return err
		}
		return c.OK(api.Done{Messages: n, DryRun: true})
	}
	n, err := c.Archive.Purge(c.R.Context(), c.Who.Actor)
	if err != nil {
		return err
	}
	return c.OK(api.Done{Messages: n})
}

func acts(c *web.Call) error {
	p, err := c.Page()
	if err != nil {
		return err
	}
	acts, next, err := c.Archive.Acts(c.R.Context(), p)
	if err != nil {
		return err
	}
	return c.OK(api.Acts{Acts: convert(acts, api.ActOf), Next: string(next)})
}
