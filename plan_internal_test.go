package reprise

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/ack"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/publish"
	"github.com/reprisemq/reprise/topology"
)

// moody is a strategy whose methods fail or panic for some messages: the header "moods" lists the names of the methods.
type moody struct {
	topology.Route
	topology.Marks
}

func mood(headers topology.Table, method string) {
	if s, _ := headers["moods"].(string); strings.Contains(s, method) {
		panic(method)
	}
}

func (m moody) Topology(queue string) topology.Topology { return m.Route.Topology(queue) }

func (m moody) Wait(d topology.Delivery, delay time.Duration) (topology.Hop, error) {
	if s, _ := d.Headers["moods"].(string); strings.Contains(s, "no-wait") {
		return topology.Hop{}, errors.New("no wait queue")
	}
	mood(d.Headers, "wait")
	return m.Route.Wait(d, delay)
}

func (m moody) Failed(d topology.Delivery) topology.Hop {
	mood(d.Headers, "failed")
	return m.Route.Failed(d)
}

func (m moody) Retry(h topology.Table, f topology.Failure) topology.Table {
	mood(h, "retry")
	return m.Marks.Retry(h, f)
}

func (m moody) Park(h topology.Table, f topology.Failure) topology.Table {
	mood(h, "park")
	return m.Marks.Park(h, f)
}

// For any delivery and any result, the plan settles the delivery in a way that cannot lose it: it acknowledges without a copy
// only after a success, and each copy has the properties of the message and fits into a frame. After any number of refusals,
// the plans end with one that keeps the message.
func TestPlansKeepMessages(t *testing.T) {
	const frame = 4096 + 2048
	moods := []string{"no-wait", "wait", "failed", "retry", "park"}
	routes := []topology.Route{
		topology.Buckets{},
		topology.Requeuing{},
		topology.DeadLettering{},
		topology.WaitQueue{Delay: time.Minute},
		topology.DelayedRetry{},
	}
	outcomes := []error{nil, errors.New("card declined"), Park(errors.New("no customer")), RetryAfter(time.Hour, nil), Snooze(time.Minute, nil)}
	seen := map[way]int{}
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		strategy := moody{routes[r.IntN(len(routes))], topology.Trail{}}
		cfg := WorkerConfig{
			Queue: "orders", Strategy: topology.Strategy{Route: strategy, Marks: strategy},
			Policy: Policy{MaxAttempts: 1 + r.IntN(3), Backoff: backoff.Fixed(time.Second)},
		}.withDefaults()
		pl := newPlanner(&cfg, "host", func() string { return "guest" })
		headers := topology.Table{}
		for _, m := range moods {
			if r.IntN(8) == 0 {
				s, _ := headers["moods"].(string)
				headers["moods"] = s + " " + m
			}
		}
		if r.IntN(4) == 0 {
			headers["full"] = strings.Repeat("x", r.IntN(frame))
		}
		d := &delivery{Delivery: consume.Delivery{
			Delivery: amqpconn.Delivery{Message: amqpconn.Message{
				MessageID: []string{"", "order-7"}[r.IntN(2)], Type: "order", CorrelationID: "c", Expiration: "1000", Body: []byte("body"),
			}, RoutingKey: "orders", Redelivered: r.IntN(2) == 0},
			Queue: "orders", Marked: headers, History: topology.History{RetriesLeft: topology.Undecided}, Attempt: 1 + r.IntN(4), FrameSize: int32(frame),
		}}
		if d.id = d.MessageID; d.id == "" && pl.copies {
			d.id = "assigned"
		}
		if r.IntN(10) == 0 {
			d.Err = errors.New("marks")
		}
		d.result = classified(outcomes[r.IntN(len(outcomes))])
		if r.IntN(4) == 0 {
			d.result.headers = topology.Table{"note": strings.Repeat("n", r.IntN(frame))}
		}
		p := pl.plan(d, r.IntN(10) == 0, time.Unix(1800000000, 0))
		seen[p.way]++
		checkPlan(t, seed, d, p)
		for refusals := 0; p.copied; refusals++ {
			if refusals > 3 {
				t.Fatalf("seed %d: the fourth refusal led to %+v", seed, p)
			}
			was := p.way
			if r.IntN(2) == 0 {
				p = pl.after(p, d, publish.DestinationRefused, errors.New("403"))
			} else {
				p = pl.after(p, d, publish.ContentRefused, ErrInvalidMessage)
			}
			seen[p.way]++
			if p.way <= was {
				t.Fatalf("seed %d: after a refused copy, got way %d again", seed, p.way)
			}
			checkPlan(t, seed, d, p)
		}
	}
	for w := retrying; w <= holding; w++ {
		if seen[w] < 100 {
			t.Errorf("way %d: %d plans, want at least 100 (the generator must reach each way)", w, seen[w])
		}
	}
}

func checkPlan(t *testing.T, seed uint64, d *delivery, p *plan) {
	t.Helper()
	fail := func(what string) { t.Fatalf("seed %d: %s: got %+v for %+v", seed, what, p, d.result) }
	switch {
	case p.event == EventDone:
		if d.result.outcome != succeeded || p.copied {
			fail("acknowledged without a success")
		}
		return
	case d.result.outcome == succeeded:
		fail("a success must be acknowledged")
	case p.verb == ack.Ack && !p.copied:
		fail("acknowledged without a copy")
	case p.event == EventRetried && (d.result.outcome == unretryable || p.way != retrying):
		fail("a message that must be parked is retried")
	case !p.copied:
		return
	}
	m := p.copy
	if m.MessageID == "" || d.id != "" && m.MessageID != d.id || m.Type != d.Type || m.CorrelationID != d.CorrelationID || string(m.Body) != string(d.Body) {
		fail("the copy differs from the message")
	}
	if m.Expiration != "" && p.hop.TTL == 0 {
		fail("the copy expires")
	}
	if err := amqpconn.CheckSize(p.hop.Exchange, p.hop.RoutingKey, &m, int(d.FrameSize), 0); err != nil {
		fail(err.Error())
	}
	if p.way != unmarked && !strings.Contains(p.failure.Error, d.result.text) {
		fail("the error of the attempt is missing")
	}
}
