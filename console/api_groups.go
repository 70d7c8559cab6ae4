package console

import (
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

func (c *call) apiGroups() error {
	p, err := c.page()
	if err != nil {
		return err
	}
	f, err := api.ParseGroupFilter(only(c.params, api.GroupNames))
	if err != nil {
		return badRequest(err.Error(), "correct the parameter")
	}
	groups, next, err := c.cfg.Archive.Groups(c.r.Context(), f.Filter(), p)
	if err != nil {
		return err
	}
	return c.ok(api.Groups{Groups: convert(groups, api.GroupOf), Next: string(next)})
}

func (c *call) apiGroup() error {
	id, err := c.id()
	if err != nil {
		return err
	}
	g, err := c.cfg.Archive.Group(c.r.Context(), failed.GroupID(id))
	if err != nil {
		return err
	}
	return c.ok(api.GroupOf(*g))
}

func (c *call) apiQueues() error {
	queues, err := c.cfg.Archive.Queues(c.r.Context())
	if err != nil {
		return err
	}
	return c.ok(api.Queues{Queues: convert(queues, api.QueueOf)})
}
