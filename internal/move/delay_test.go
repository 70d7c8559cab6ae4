package move_test

import (
	"maps"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/move"
)

// A waiting message keeps the rest of its delay if it is known, and is never early.
func TestMoveKeepsDelays(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		const delay = time.Hour
		p.from.queue(t, "orders", nil)
		to := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}
		p.from.queue(t, "orders.wait", to)
		ttl := amqp.Table{"x-message-ttl": delay.Milliseconds(), "x-queue-type": "quorum"}
		maps.Copy(ttl, to)
		p.from.queue(t, "orders.retry", ttl)
		failed := time.Now().Add(-10 * time.Minute).Truncate(time.Second)
		copied := amqp.Table{
			"x-reprise-queue": "orders", "x-reprise-attempts": int64(1),
			"x-reprise-errors": []any{amqp.Table{"attempt": int64(1), "time": failed, "error": "x", "host": "h", "duration-ms": int64(1)}},
		}
		waits := amqp.Table{"x-reprise-waits": delay.Milliseconds()}
		maps.Copy(waits, copied)
		own := strconv.FormatInt(delay.Milliseconds(), 10)
		before := time.Now()
		for body, m := range map[string]amqp.Publishing{"copy": {Headers: copied, Expiration: own}, "growing": {Headers: waits, Expiration: own}, "foreign": {Expiration: own}} {
			m.Body = []byte(body)
			p.from.publish(t, "", "orders.wait", m)
		}
		p.from.publish(t, "", "orders.retry", amqp.Publishing{Body: []byte("ttl")})
		published := time.Now()
		p.from.restart()
		moving := time.Now()
		if plan, result, err := p.move(t, move.Config{}); err != nil || result.Moved != 4 {
			t.Fatalf("got %+v, %v (%q)", result, err, plan.Problems)
		}
		moved := time.Now()
		all := append(p.to.take(t, "orders.wait"), p.to.take(t, "orders.retry")...)
		for _, d := range all {
			// due is between earliest and latest
			earliest, latest := before.Add(delay), published.Add(delay)
			switch body := string(d.Body); {
			case body == "growing", body == "foreign":
				if d.Expiration != own {
					t.Errorf("%s: got expiration %q", body, d.Expiration)
				}
				continue
			case body == "ttl" && p.from.IsRabbitMQ:
				if d.Expiration != "" {
					t.Errorf("ttl: got expiration %q", d.Expiration)
				}
				continue
			case p.from.IsRabbitMQ:
				earliest = failed.Add(delay + time.Second)
				latest = earliest
			}
			ms, err := strconv.ParseInt(d.Expiration, 10, 64)
			rest := time.Duration(ms) * time.Millisecond
			if err != nil || rest < earliest.Sub(moved) || rest > latest.Sub(moving)+2*time.Millisecond {
				t.Errorf("%s: got expiration %q, want %s to %s", d.Body, d.Expiration, earliest.Sub(moved), latest.Sub(moving))
			}
			if due, _ := d.Headers["x-reprise-due"].(int64); string(d.Body) == "copy" && (due < earliest.UnixMilli() || due > latest.UnixMilli()+1) {
				t.Errorf("got due %d, want %d to %d", due, earliest.UnixMilli(), latest.UnixMilli())
			}
			if _, set := d.Headers["x-reprise-expiry"]; set {
				t.Errorf("%s: got headers %v", d.Body, d.Headers)
			}
		}
		if len(all) != 4 {
			t.Errorf("got %d messages", len(all))
		}
	})
}

// A header that looks like that of the embedded broker does not shorten a delay, after which the queue would drop the message.
func TestMoveDoesNotBelieveForgedExpiry(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, p pair) {
		p.from.queue(t, "orders", amqp.Table{"x-message-ttl": time.Hour.Milliseconds()})
		p.from.publish(t, "", "orders", amqp.Publishing{Headers: amqp.Table{"x-reprise-expiry": int64(1)}})
		p.from.restart()
		if _, result, err := p.move(t, move.Config{}); err != nil || result.Moved != 1 {
			t.Fatalf("got %+v, %v", result, err)
		}
		if got := p.to.take(t, "orders"); len(got) != 1 {
			t.Errorf("got %d messages", len(got))
		}
	})
}
