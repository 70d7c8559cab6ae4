package failed

import (
	"strconv"
	"time"

	"github.com/reprisemq/reprise/topology"
)

// death is an entry of x-death: that a message was dead-lettered from a queue.
// https://www.rabbitmq.com/docs/dlx#effects
type death struct {
	queue, reason string // expired, rejected, maxlen, delivery_limit
	exchange, key string // where it had been published
	time          time.Time
}

// deaths returns what x-death says, the newest first. Entries that no broker
// writes are left out.
func deaths(headers topology.Table) []death {
	entries, _ := headers["x-death"].([]any)
	var all []death
	for _, e := range entries {
		t, ok := e.(topology.Table)
		if !ok {
			continue
		}
		var d death
		d.queue, _ = t["queue"].(string)
		d.reason, _ = t["reason"].(string)
		d.exchange, _ = t["exchange"].(string)
		d.time, _ = t["time"].(time.Time)
		if keys, _ := t["routing-keys"].([]any); len(keys) > 0 {
			d.key, _ = keys[0].(string)
		}
		if d.queue != "" && d.reason != "" {
			all = append(all, d)
		}
	}
	return all
}

// milliseconds writes an expiration as AMQP has it.
func milliseconds(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return strconv.FormatInt(d.Milliseconds(), 10)
}
