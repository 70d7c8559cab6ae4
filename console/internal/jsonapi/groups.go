package jsonapi

import (
	"github.com/reprisemq/reprise/console/internal/fault"
	"github.com/reprisemq/reprise/console/internal/web"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

func groups(c *web.Call) error {
	p, err := c.Page()
	if err != nil {
		return err
	}
	f, err := api.ParseGroupFilter(web.Only(c.Params, api.GroupNames))
	if err != nil {
		return fault.BadRequest(err.Error(), "correct the parameter")
	}
	groups, next, err := c.Archive.Groups(c.R.Context(), f.Filter(), p)
	if err != nil {
		return err
	}
	return c.OK(api.Groups{Groups: convert(groups, api.GroupOf), Next: string(next)})
}

func group(c *web.Call) error {
	id, err := id(c)
	if err != nil {
		return err
	}
	g, err := c.Archive.Group(c.R.Context(), failed.GroupID(id))
	if err != nil {
		return err
	}
	return c.OK(api.GroupOf(*g))
}

func queues(c *web.Call) error {
	queues, err := c.Archive.Queues(c.R.Context())
	if err != nil {
		return err
	}
	return c.OK(api.Queues{Queues: convert(queues, api.QueueOf)})
}
