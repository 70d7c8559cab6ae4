package workertest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// BenchmarkLateness measures how late retries are: 2000 uniformly distributed delays between 0 and 10 s, at 400 messages per
// second. Each route takes 15 s. The benchmark needs RabbitMQ 4.3:
//
//	REPRISE_TEST_RABBITMQ_43=$(scripts/rabbitmq start 4.3) go test -run '^$' -bench Lateness ./internal/workertest
func BenchmarkLateness(b *testing.B) {
	rabbit := testkit.RabbitMQs()[1]
	rabbit.Require(b)
	for _, tc := range []struct {
		name  string
		route topology.Route
	}{
		{"buckets", topology.Buckets{}},
		{"buckets of growth 1.1", topology.Buckets{Growth: 1.1}},
		{"buckets of base 100ms and growth 1.1", topology.Buckets{Base: 100 * time.Millisecond, Growth: 1.1}},
		{"levels", topology.Levels{}},
		{"message TTL", topology.MessageTTL{}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			var late []time.Duration
			for b.Loop() {
				late = append(late, lateness(newRaw(b, rabbit.URL), dial(b, rabbit.URL), tc.route)...)
			}
			slices.Sort(late)
			for _, q := range []struct {
				unit string
				at   float64
			}{{"p50-ms", .5}, {"p99-ms", .99}, {"max-ms", 1}} {
				b.ReportMetric(float64(late[int(q.at*float64(len(late)-1))].Milliseconds()), q.unit)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func lateness(r *raw, c client, route topology.Route) []time.Duration {
	const messages, rate = 2000, 400
	work, random := testkit.Name(r.t, "work"), rand.New(rand.NewPCG(7, 8))
	topo, hops, asked := route.Topology(work), make([]topology.Hop, messages), make([]time.Duration, messages)
	for i := range hops {
		asked[i] = time.Duration(random.Int64N(int64(10 * time.Second)))
		hop, err := route.Wait(topology.Delivery{Queue: work}, asked[i])
		if err != nil {
			r.t.Fatal(err)
		}
		hops[i], topo = hop, topo.Merge(hop.Topology)
	}
	r.declare(c, topo)
	collected, s, sent := r.collect(work, messages), newSender(r), make([]time.Time, messages)
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	for i, hop := range hops {
		<-tick.C
		sent[i] = time.Now()
		s.send(hop, amqp.Publishing{MessageId: fmt.Sprint(i)})
	}
	s.wait()
	late := make([]time.Duration, 0, messages)
	for _, d := range collected(timeout) {
		var i int
		if _, err := fmt.Sscan(d.MessageId, &i); err != nil {
			r.t.Fatal(err)
		}
		late = append(late, d.at.Sub(sent[i])-asked[i])
	}
	return late
}
