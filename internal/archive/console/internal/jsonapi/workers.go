package jsonapi

import (
	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
)

func workers(c *web.Call) (api.Workers, error) { return c.Workers(), nil }

func pauseWorkers(c *web.Call) (all api.Workers, err error) {
	var p api.Pause
	if err := c.Read(&p); err != nil {
		return all, err
	}
	if err := c.PauseWorkers(p); err != nil {
		return all, err
	}
	return c.Workers(), nil
}

func resumeWorkers(c *web.Call) (all api.Workers, err error) {
	var r api.Resume
	if err := c.Read(&r); err != nil {
		return all, err
	}
	if err := c.ResumeWorkers(r); err != nil {
		return all, err
	}
	return c.Workers(), nil
}
