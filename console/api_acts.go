package console

import (
	"slices"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

// selected returns the filter of a selection that can be meant.
func selected(s api.Selection) (failed.Filter, error) {
	if err := s.Filter.Validate(); err != nil {
		return failed.Filter{}, badRequest(err.Error(), "nothing was changed: correct the filter")
	}
	switch isZero := s.Filter.IsZero(); {
	case isZero && !s.All:
		return failed.Filter{}, badRequest("the filter selects all messages there are", `send "all": true if that is meant`)
	case !isZero && s.All:
		return failed.Filter{}, badRequest(`there is a filter, and "all": true`, "send one of them")
	}
	return s.Selected(), nil
}

// countIn counts what an act would do: the messages that are selected and in a state.
func (c *call) countIn(f failed.Filter, state failed.State) error {
	if len(f.States) > 0 && !slices.Contains(f.States, state) {
		return c.ok(api.Done{DryRun: true})
	}
	f.All, f.States = false, []failed.State{state}
	total, err := c.cfg.Archive.Count(c.r.Context(), f)
	if err != nil {
		return err
	}
	return c.ok(api.Done{Messages: total.N, More: total.More, DryRun: true})
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
	f, err := selected(d.Selection)
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
	f, err := selected(s)
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
