package jsonapi

import (
	"time"

	"github.com/reprisemq/reprise/internal/archive/api"
	"github.com/reprisemq/reprise/internal/archive/console/internal/fault"
	"github.com/reprisemq/reprise/internal/archive/console/internal/web"
	"github.com/reprisemq/reprise/internal/archive/history"
)

func pastOf(c *web.Call) (api.History, error) {
	var queue api.Text
	if err := queue.UnmarshalText([]byte(c.Params.Get("queue"))); err != nil {
		return api.History{}, fault.BadRequest("queue: "+err.Error(), "correct the parameter")
	}
	all, err := c.Histories(string(queue))
	if err != nil {
		return api.History{}, err
	}
	now := c.Clock().UTC().Truncate(time.Millisecond)
	return api.HistoryOf(all.Range, all.Queues, all.Marks, now), nil
}

func marks(c *web.Call) (api.Marks, error) {
	all, err := c.Marks()
	return api.Marks{Marks: listed(all)}, err
}

func addMark(c *web.Call, m api.NewMark) (history.Mark, error) {
	return c.AddMark(history.Mark{Text: m.Text, At: m.Time, Queue: m.Queue})
}

func removeMark(c *web.Call, id int64) (history.Mark, error) {
	return c.RemoveMark(id)
}
