//go:build probe

package conformance

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
)

func TestProbeOrder(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		testkit.Each(t, func(t *testing.T, b testkit.Target) {
			all := amqp.Table{
				"x-expires": 100000, "x-message-ttl": 100000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "a",
				"x-max-length": 1000, "x-max-length-bytes": 1000, "x-overflow": "reject-publish", "x-single-active-consumer": true,
				"x-queue-leader-locator": "balanced", "x-queue-type": kind,
			}
			if kind == "classic" {
				all["x-max-priority"] = 3
				all["x-queue-version"] = 2
				all["x-queue-mode"] = "lazy"
				all["x-queue-master-locator"] = "min-masters"
			} else {
				all["x-dead-letter-strategy"] = "at-least-once"
				all["x-delivery-limit"] = 5
				all["x-max-in-memory-length"] = 5
				all["x-max-in-memory-bytes"] = 5
				all["x-quorum-initial-group-size"] = 1
				all["x-quorum-target-group-size"] = 1
				all["x-consumer-timeout"] = 100000
				all["x-consumer-disconnected-timeout"] = 100000
				all["x-delayed-retry-type"] = "all"
				all["x-delayed-retry-min"] = 100
				all["x-delayed-retry-max"] = 100
				all["x-member-placement-tag"] = "x"
			}
			c := connect(t, b)
			q := c.queue("q", all)
			args := amqp.Table{}
			for range 40 {
				ch, _ := c.conn.Channel()
				_, err := ch.QueueDeclare(q, true, false, false, false, args)
				if err == nil {
					break
				}
				s := err.Error()
				i := strings.Index(s, "arg '")
				s = s[i+5:]
				name := s[:strings.Index(s, "'")]
				if _, has := args[name]; has { fmt.Println("stuck", err); break }
				args[name] = all[name]
				fmt.Println(b.Name, kind, name)
			}
			for k := range all { if _, has := args[k]; !has { fmt.Println(b.Name, kind, "not compared", k) } }
		})
	}
}

func TestProbeBytes(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, v := range []struct{ label string; m amqp.Publishing }{
			{"plain", amqp.Publishing{}},
			{"ct", amqp.Publishing{ContentType: "text/plain"}},
			{"headers", amqp.Publishing{Headers: amqp.Table{"h": "v"}}},
			{"int", amqp.Publishing{Headers: amqp.Table{"h": int32(1)}}},
			{"prio", amqp.Publishing{Priority: 1}},
			{"exp", amqp.Publishing{Expiration: "3600000"}},
		} {
			for _, via := range []string{"", "x"} {
			c := connect(t, b)
			q := c.queue("q", amqp.Table{"x-queue-type": "quorum", "x-max-length-bytes": 1000})
			x, k := "", q
			if via != "" { x = c.exchange("x", "fanout"); c.bind(q, "", x); k = "" }
			lo, hi := 0, 1001
			for lo+1 < hi {
				mid := (lo + hi) / 2
				v.m.Body = make([]byte, mid)
				c.publish(x, k, v.m)
				n := c.ready(q)
				if n == 1 { lo = mid } else { hi = mid }
				_, _ = c.QueuePurge(q, false)
			}
			fmt.Println(b.Name, v.label, via, "overhead", 1000-lo, "len q", len(q), "len x", len(x))
			}
		}
	})
}
