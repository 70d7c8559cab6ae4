package framework

import (
	"errors"
	"time"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/archive/failed"
)

// celery: https://docs.celeryq.dev/en/stable/internals/protocol.html. A task that raises Reject is dead-lettered without its error. The
// worker revokes a task that has expired, without a trace.
var celery = framework{
	name: "Celery",
	read: func(m message) (failure, bool) {
		task, id := m.text("task"), m.text("id")
		_, root := m.Headers["root_id"]
		f := failure{attempts: amqpvalue.Count(m.Headers["retries"]) + 1, text: "task " + task + " was rejected"}
		if queue := m.deadQueue(); queue != "" {
			f.text += " in " + queue
		}
		return f, task != "" && id != "" && root
	},
	unsigned: true,
	owns:     func(string) bool { return false },
	restore: func(c *failed.Content) error {
		if expires := timeOf(textOf(c.Headers["expires"]), "2006-01-02T15:04:05.999999999"); !expires.IsZero() && time.Now().After(expires) {
			return errors.New("the worker would drop the task, because it expired at " + expires.Format(time.RFC3339) + " (edit or remove the header expires)")
		}
		if _, found := c.Headers["retries"]; found {
			c.Headers["retries"] = int32(0) // with its last value, the next failure is final
		}
		return nil
	},
}
