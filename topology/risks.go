package topology

import (
	"cmp"
	"fmt"
	"time"

	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/brief"
)

// Risks returns the ways in which the broker removes messages from the queue before a consumer has processed them, because of
// the properties and arguments of q, each with advice. It returns nil if there are none. A queue that an operator limits by
// a policy has the same risks: add the definition of the policy to the arguments. https://www.rabbitmq.com/docs/policies
func (q Queue) Risks() (risks []string) {
	add := func(format string, args ...any) { risks = append(risks, fmt.Sprintf(format, args...)) }
	fate := "drops"
	if to, found := q.Args["x-dead-letter-exchange"].(string); found {
		fate = "dead-letters to exchange " + brief.Quoted(to)
	}
	if ttl, found := amqpvalue.Integer(q.Args["x-message-ttl"]); found {
		add("x-message-ttl: the broker %s messages that wait longer than %s, also while the workers are stopped or paused (remove the limit)", fate, inTime(ttl))
	}
	overflow := cmp.Or(q.Args["x-overflow"], any("drop-head"))
	if keeps := overflow == "reject-publish" || overflow == "reject-publish-dlx" && q.Args["x-queue-type"] != "quorum"; !keeps {
		for _, limit := range []struct{ argument, unit string }{{"x-max-length", "messages"}, {"x-max-length-bytes", "bytes"}} {
			if n, found := amqpvalue.Integer(q.Args[limit.argument]); found {
				add("%s: the broker %s the oldest message for each new message above %d %s (set x-overflow to reject-publish, or remove the limit)", limit.argument, fate, n, limit.unit)
			}
		}
	}
	if unused, found := amqpvalue.Integer(q.Args["x-expires"]); found {
		add("x-expires: the broker deletes the queue and its messages %s after the last consumer has stopped (remove the limit)", inTime(unused))
	}
	if q.AutoDelete {
		add("auto-delete: the broker deletes the queue and its messages when the last consumer stops, also for a pause (declare a queue that is not auto-delete)")
	}
	if q.Exclusive {
		add("exclusive: the broker deletes the queue and its messages when the connection of its owner closes (declare a queue that is not exclusive)")
	}
	if q.Transient {
		add("transient: the broker deletes the queue and its messages when it restarts (declare a durable queue)")
	}
	return risks
}

func inTime(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
