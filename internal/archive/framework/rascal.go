package framework

import (
	"cmp"
	"maps"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/topology"
)

// rascal: https://github.com/onebeyond/rascal#subscriber-error-handling (forward and republish with immediateNack). It records everything in the
// table of one header. With the marks of its recovery and without x-death, the message would be rejected for ever.
var rascal = framework{
	name: "rascal",
	read: func(m message) (failure, bool) {
		t, _ := m.Headers["rascal"].(topology.Table)
		queue := textOf(t["originalQueue"])
		problem, _ := t["error"].(topology.Table)
		f := failure{queue: queue, kind: textOf(problem["code"]), text: textOf(problem["message"])}
		recovery, _ := t["recovery"].(topology.Table)
		marks, _ := recovery[queue].(topology.Table)
		f.attempts = amqpvalue.Count(marks["republished"])
		if f.attempts > 0 || len(problem) > 0 {
			f.attempts++
		}
		return f, queue != "" && (len(problem) > 0 || len(recovery) > 0)
	},
	owns: func(string) bool { return false },
	restore: func(c *failed.Content) error {
		t, ok := c.Headers["rascal"].(topology.Table)
		if !ok {
			return nil
		}
		t = maps.Clone(t)
		delete(t, "error")
		if recovery, ok := t["recovery"].(topology.Table); ok {
			recovery = maps.Clone(recovery)
			delete(recovery, cmp.Or(textOf(t["originalQueue"]), " "))
			t["recovery"] = recovery
		}
		c.Headers["rascal"] = t
		return nil
	},
}
