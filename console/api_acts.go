package console

import (
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

// actOn returns the filter of a valid selection.
func (c *call) actOn(s api.Selection) (failed.Filter, error) {
	if err := s.Validate(); err != nil {
		return failed.Filter{}, badRequest(err.Error(), "correct the selection; nothing was changed")
	}
	f := s.Selected()
	return f, c.cfg.Archive.Check(c.r.Context(), f)
}

// countIn counts the messages for which an act would be done.
func (c *call) countIn(f failed.Filter, state failed.State) error {
	n, err := c.cfg.Archive.CountState(c.r.Context(), f, state)
	if err != nil {
		return err
	}
	return c.ok(api.Done{Messages: n, DryRun: true})
}

func (c *call) apiDiscard() error {
	isDryRun, err := c.isDryRun()
	if err != nil {
		return err
	}
	var d api.Discard
	if err := c.read(&d); err != nil {
		return err
	}
	f, err := c.actOn(d.Selection)
	switch {
	case err != nil:
		return err
	case isDryRun:
		return c.countIn(f, failed.Failed)
	case d.Reason == "":
		return badRequest("there is no reason", `send "reason": what to tell who asks why they were discarded`)
	}
	n, err := c.cfg.Archive.Discard(c.r.Context(), f, d.Reason, c.who.actor)
	if err != nil {
		return err
	}
	return c.ok(api.Done{Messages: n})
}

func (c *call) apiRestore() error {
	isDryRun, err := c.isDryRun()
	if err != nil {
		return err
	}
	var s api.Selection
	if err := c.read(&s); err != nil {
		return err
	}
	f, err := c.actOn(s)
	switch {
	case err != nil:
		return err
	case isDryRun:
		return c.countIn(f, failed.Discarded)
	}
	n, err := c.cfg.Archive.Restore(c.r.Context(), f, c.who.actor)
	if err != nil {
		return err
	}
	return c.ok(api.Done{Messages: n})
}

// apiPurge removes what the archive's retention says.
func (c *call) apiPurge() error {
	isDryRun, err := c.isDryRun()
	if err != nil {
		return err
	}
	if isDryRun {
		n, err := c.cfg.Archive.WouldPurge(c.r.Context())
		if err != nil {
			return err
		}
		return c.ok(api.Done{Messages: n, DryRun: true})
	}
	n, err := c.cfg.Archive.Purge(c.r.Context(), c.who.actor)
	if err != nil {
		return err
	}
	return c.ok(api.Done{Messages: n})
}

func (c *call) apiActs() error {
	p, err := c.page()
	if err != nil {
		return err
	}
	acts, next, err := c.cfg.Archive.Acts(c.r.Context(), p)
	if err != nil {
		return err
	}
	return c.ok(api.Acts{Acts: convert(acts, api.ActOf), Next: string(next)})
}
