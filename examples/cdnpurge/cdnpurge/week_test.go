package cdnpurge_test

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/breaker"
	"github.com/reprisemq/reprise/examples/cdnpurge/cdnpurge"
	"github.com/reprisemq/reprise/reprisetest"
)

const seed = 507

// A way is a consumer configuration for the messages of the week.
type way struct {
	name, title string
	consume     func(t *testing.T, b *reprisetest.Broker, p *cdnpurge.Purger)
}

var ways = []way{
	{"no backoff", "Without back-off", requeue},
	{"wait exchange", "With back-off, as designed", waitExchange(nil)},
	{"Reprise's default, breaker", "Reprise's default, and a circuit breaker", buckets(&probeEveryMinute)},
}

// otherWays vary either the circuit breaker or the strategy.
var otherWays = []way{
	{"wait exchange, breaker", "", waitExchange(&probeEveryMinute)},
	{"default, breaker that is slow to open", "", buckets(&breaker.Config{})},
	{"default, no breaker", "", buckets(nil)},
}

// probeEveryMinute opens the circuit breaker at the first refusal, and probes the CDN a
// minute later.
var probeEveryMinute = breaker.Config{Failures: 1, OpenFor: time.Minute}

// run simulates a week, and then continues until the backlog is empty.
func (w way) run(t *testing.T, all []purge) (r result) {
	config := reprisetest.Config{Timeout: 60 * day}
	config.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, cdnpurge.Design{RoutingKeys: cdnpurge.Kinds}.Topology())
		began := time.Now()
		ledger := newLedger(all, began)
		cdn := &cdnpurge.CDN{
			Room:     room,
			Rate:     func(at time.Time) float64 { return capacity(at.Sub(began)) },
			Answered: ledger.answered,
		}
		p := &cdnpurge.Purger{URL: "http://cdn", Client: &http.Client{Transport: &transport{Handler: cdn, calls: map[string]uint64{}}}}
		w.consume(t, b, p)
		client := b.Client(t, nil)
		for _, m := range all {
			time.Sleep(time.Until(began.Add(m.at)))
			if err := client.Publish(t.Context(), &reprise.Message{Exchange: "cdn-purge", RoutingKey: m.kind, MessageID: m.id, Body: []byte("[" + m.id + "]")}); err != nil {
				t.Fatal(err)
			}
			ledger.published()
		}
		for ledger.left()-b.Depth(t, "cdn-purge.failed") > 0 && time.Since(began) < 2*week {
			time.Sleep(time.Minute)
		}
		r = ledger.result(w)
		r.parked = b.Depth(t, "cdn-purge.failed")
	})
	return r
}

// requeue is a handwritten consumer without backoff. If the CDN refuses a purge, requeue immediately returns the
// message to the queue.
func requeue(t *testing.T, b *reprisetest.Broker, p *cdnpurge.Purger) {
	conn, err := amqp.DialConfig(b.URL(), amqp.Config{
		Heartbeat: time.Hour,
		Dial:      func(network, addr string) (net.Conn, error) { return b.DialContext(t.Context(), network, addr) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Qos(1, 0, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume("cdn-purge", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	var consumer sync.WaitGroup
	consumer.Go(func() {
		for d := range deliveries {
			var objects []json.RawMessage
			if err := json.Unmarshal(d.Body, &objects); err != nil {
				t.Error(err)
			}
			if p.Purge(t.Context(), d.RoutingKey, objects) != nil {
				_ = d.Nack(false, true)
			} else {
				_ = d.Ack(false)
			}
		}
	})
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		consumer.Wait()
	})
}

// waitExchange consumes with a worker that is configured as designed.
func waitExchange(c *breaker.Config) func(*testing.T, *reprisetest.Broker, *cdnpurge.Purger) {
	return func(t *testing.T, b *reprisetest.Broker, p *cdnpurge.Purger) {
		random := rand.New(rand.NewPCG(seed, 1)) // deterministic, because one handler runs at a time
		design := cdnpurge.Design{RoutingKeys: cdnpurge.Kinds, Rand: random.Float64}
		b.Work(t, reprise.WorkerConfig{Queue: "cdn-purge", Handler: p.Handler(), Strategy: design.Strategy(), Breaker: newBreaker(t, c)})
	}
}

// buckets consumes with a worker that uses the default strategy.
func buckets(c *breaker.Config) func(*testing.T, *reprisetest.Broker, *cdnpurge.Purger) {
	return func(t *testing.T, b *reprisetest.Broker, p *cdnpurge.Purger) {
		random := rand.New(rand.NewPCG(seed, 2))
		strategy := reprise.Policy{}.WithDefaults().Backoff.(backoff.Jitter)
		strategy.Rand = random.Float64 // the default backoff, but with a fixed seed
		b.Work(t, reprise.WorkerConfig{Queue: "cdn-purge", Handler: p.Handler(), Policy: reprise.Policy{Backoff: strategy}, Breaker: newBreaker(t, c)})
	}
}

func newBreaker(t *testing.T, c *breaker.Config) reprise.Breaker {
	if c == nil {
		return nil
	}
	b, err := breaker.New(*c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	update = flag.Bool("update", false, "write the figures into README.md, and the charts")
	more   = flag.Bool("more", false, "play the week in other ways, too")
)

// TestWeek simulates a week in each way, and compares the results with README.md:
//
//	go test -C examples ./cdnpurge/cdnpurge -run TestWeek -v             # prints the figures
//	go test -C examples ./cdnpurge/cdnpurge -run TestWeek -v -more       # prints the other ways, too
//	go test -C examples ./cdnpurge/cdnpurge -run TestWeek -update        # writes figures and charts
func TestWeek(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a week of purges in five ways")
	}
	all := traffic(seed)
	results := play(t, all, ways)
	for _, r := range results {
		if r.done != len(all) || r.parked != 0 {
			t.Errorf("%s: %d purges published: got %d done, %d parked, want all done", r.name, len(all), r.done, r.parked)
		}
	}
	without, designed, reprise := results[0], results[1], results[2]
	switch {
	case designed.refused >= without.refused/2:
		t.Errorf("refused calls with backoff: got %d, want less than half of %d", designed.refused, without.refused)
	case reprise.refused >= designed.refused/2:
		t.Errorf("refused calls with the circuit breaker: got %d, want less than half of %d", reprise.refused, designed.refused)
	case reprise.evening >= designed.evening || reprise.p99 >= designed.p99:
		t.Errorf("evening and p99 with the circuit breaker: got %s and %s, want less than %s and %s",
			reprise.evening, reprise.p99, designed.evening, designed.p99)
	}
	compare(t, "../README.md", "figures", table(results))
	if *update {
		writeChart(t, "../week", without, designed)
		writeChart(t, "../week-reprise", designed, reprise)
	}
	if *more {
		t.Logf("other ways:\n%s", table(play(t, all, otherWays)))
	}
}

// play simulates the week in each of the ways, in parallel.
func play(t *testing.T, all []purge, ways []way) []result {
	results := make([]result, len(ways))
	t.Run("week", func(t *testing.T) {
		for i, w := range ways {
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				results[i] = w.run(t, all)
			})
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	return results
}
