package console

import (
	"slices"
	"strconv"

	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/api"
)

func (c *call) apiGroups() error {
	v, err := c.query(slices.Concat([]string{"queue", "state", "text", "order"}, pageNames)...)
	if err != nil {
		return err
	}
	p, err := pageOf(v)
	if err != nil {
		return err
	}
	var queue api.Text
	if err := queue.UnmarshalText([]byte(v.Get("queue"))); err != nil {
		return badRequest("queue: "+err.Error(), "write the name of a queue")
	}
	f := failed.GroupFilter{Queue: string(queue), State: failed.State(v.Get("state")), Text: v.Get("text"), Order: failed.GroupOrder(v.Get("order"))}
	if f.State != "" && !slices.Contains(failed.States(), f.State) {
		return badRequest("state "+strconv.Quote(string(f.State))+" cannot be", "use failed, replaying, replayed or discarded")
	}
	if f.Order != failed.ByLast && f.Order != failed.ByFailed {
		return badRequest("order "+strconv.Quote(string(f.Order))+" cannot be", "use failed, or leave it out for the latest failure first")
	}
	groups, next, err := c.cfg.Archive.Groups(c.r.Context(), f, p)
	if err != nil {
		return err
	}
	return c.ok(api.Groups{Groups: convert(groups, api.GroupOf), Next: string(next)})
}

func (c *call) apiGroup() error {
	id, err := c.idAlone()
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
	if _, err := c.query(); err != nil {
		return err
	}
	queues, err := c.cfg.Archive.Queues(c.r.Context())
	if err != nil {
		return err
	}
	return c.ok(api.Queues{Queues: convert(queues, api.QueueOf)})
}
