package jsonapi

import (
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
)

func workers(c *web.Call) (api.Workers, error) { return c.Workers(), nil }

func pauseWorkers(c *web.Call, p api.Pause) (all api.Workers, err error) {
	if err := c.PauseWorkers(p); err != nil {
		return all, err
	}
	return c.Workers(), nil
}

func controlKey(c *web.Call, a api.KeyAct) (done api.KeyDone, err error) {
	dryRun, err := c.Flag("dry_run")
	if err != nil {
		return done, err
	}
	return c.ControlKey(a, dryRun)
}

func resumeWorkers(c *web.Call, r api.Resume) (all api.Workers, err error) {
	if err := c.ResumeWorkers(r); err != nil {
		return all, err
	}
	return c.Workers(), nil
}
