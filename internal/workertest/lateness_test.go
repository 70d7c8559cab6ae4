package workertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// slack is the maximum lateness that the embedded broker causes in virtual time, because its timers have a resolution of
// one millisecond.
const slack = 5 * time.Millisecond

// With any mixture of delays, no message is later than its bucket permits, regardless of the other waiting messages.
func TestBucketsLimitLatenessUnderMixedDelays(t *testing.T) {
	t.Parallel()
	for _, b := range []topology.Buckets{{}, {Growth: 1.1}} {
		t.Run(fmt.Sprint("growth ", b.Growth), func(t *testing.T) {
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				const messages = 2000
				random := rand.New(rand.NewPCG(1, 2))
				var mu sync.Mutex // also protects random
				failedAt, delays := map[string]time.Time{}, map[string]time.Duration{}
				waited := map[string]time.Duration{}
				h := reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					if m.Attempt == 2 {
						waited[m.MessageID] = time.Since(failedAt[m.MessageID])
						return nil
					}
					failedAt[m.MessageID], delays[m.MessageID] = time.Now(), mixed(random, time.Hour)
					return reprise.RetryAfter(delays[m.MessageID], errScripted)
				})
				c := dial()
				w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{
					Queue: "work", Handler: h, Concurrency: 50, Strategy: topology.Strategy{Route: b},
				})
				if err != nil {
					t.Fatal(err)
				}
				ran := make(chan error, 1)
				go func() { ran <- w.Run(t.Context()) }()
				c.log.wait(t, "consuming", 1)
				s := newSender(r)
				for i := range messages {
					time.Sleep(time.Duration(i%50) * 1_000_123) // one minute in total
					s.send(topology.Hop{RoutingKey: "work"}, amqp.Publishing{MessageId: fmt.Sprint(i)})
				}
				s.wait()
				time.Sleep(2 * time.Hour)
				if err := w.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				if err := <-ran; err != nil {
					t.Error(err)
				}
				if len(waited) != messages {
					t.Fatalf("messages: got %d, want %d", len(waited), messages)
				}
				var late []time.Duration
				for id, took := range waited {
					_, upper := b.Bounds(delays[id])
					if took < delays[id] || took > upper+slack {
						t.Errorf("delay of %s: got %s, want at most the end of its bucket at %s", delays[id], took, upper)
					}
					late = append(late, took-delays[id])
				}
				t.Log(quantiles(late))
			})
		})
	}
}

func TestLevelsAreExactToTheSecond(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		c, random := dial(), rand.New(rand.NewPCG(3, 4))
		schedule := func(delay time.Duration) topology.Hop {
			hop, err := topology.Levels{}.Schedule("calendar", "due", delay)
			if err != nil {
				t.Fatal(err)
			}
			return hop
		}
		if err := c.Declare(t.Context(), schedule(24*time.Hour).Topology.Merge(topology.Topology{
			Exchanges: []topology.Exchange{{Name: "calendar", Kind: topology.Topic}},
			Queues:    []topology.Queue{{Name: "due"}},
			Bindings:  []topology.Binding{{Exchange: "calendar", Queue: "due", RoutingKey: "#"}},
		})); err != nil {
			t.Fatal(err)
		}
		collected := r.collect("due", 1000)
		s := newSender(r)
		sent, hops := map[string]time.Time{}, map[string]topology.Hop{}
		for i := range 1000 {
			id := fmt.Sprint(i)
			hops[id] = schedule(1 + mixed(random, 24*time.Hour))
			time.Sleep(time.Duration(i%7) * 1_000_123)
			sent[id] = time.Now()
			s.send(hops[id], amqp.Publishing{MessageId: id})
		}
		s.wait()
		for _, d := range collected(72 * time.Hour) {
			hop := hops[d.MessageId]
			if took := d.at.Sub(sent[d.MessageId]); took < hop.Delay || took > hop.Delay+slack {
				t.Errorf("delay of %[1]s: got %[2]s, want %[1]s with at most %[3]s more", hop.Delay, took, slack)
			}
			if d.Exchange != "calendar" || d.RoutingKey != "due" {
				t.Errorf("got exchange %q, routing key %q; want calendar, due", d.Exchange, d.RoutingKey)
			}
		}
	})
}

// Levels delays the retries of a worker. The handler does not receive the headers of the route.
func TestLevelsDelayRetries(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		const delay = 5*time.Hour + 17*time.Minute + 42*time.Second
		began := time.Now()
		var at []time.Duration
		h := newScript(func(m *reprise.Delivery) error {
			at = append(at, time.Since(began).Round(slack))
			switch m.Attempt {
			case 1:
				return reprise.RetryAfter(delay, errScripted)
			case 2:
				return reprise.RetryAfter(time.Second, errScripted) // shorter than the delay in the headers of this copy
			}
			return nil
		})
		start(t, dial(), reprise.WorkerConfig{Queue: "work", Handler: h, Strategy: topology.Strategy{Route: topology.Levels{}}})
		r.publish("", "work", amqp.Publishing{Headers: amqp.Table{"own": "kept"}})
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		for _, m := range h.wait(t, 3) {
			if diff := cmp.Diff(map[string]any{"own": "kept"}, m.Headers); diff != "" {
				t.Errorf("headers of attempt %d: -want +got:\n%s", m.Attempt, diff)
			}
		}
		if diff := cmp.Diff([]time.Duration{0, delay, delay + time.Second}, at); diff != "" {
			t.Errorf("attempts: -want +got:\n%s", diff)
		}
	})
}

// With one queue for all delays, a message with a delay of one second waits for an hour behind a message with a delay of one
// hour. Buckets avoids this problem.
func TestMessageTTLBlocksShortDelaysBehindLongDelays(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		route := topology.MessageTTL{}
		d := topology.Delivery{Queue: "work"}
		long, err1 := route.Wait(d, time.Hour)
		short, err2 := route.Wait(d, time.Second)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if err := dial().Declare(t.Context(), route.Topology("work").Merge(long.Topology)); err != nil {
			t.Fatal(err)
		}
		collected := r.collect("work", 3)
		s, began := newSender(r), time.Now()
		s.send(short, amqp.Publishing{MessageId: "alone"})
		time.Sleep(time.Minute)
		s.send(long, amqp.Publishing{MessageId: "long"})
		s.send(short, amqp.Publishing{MessageId: "behind it"})
		s.wait()
		var got []string
		for _, d := range collected(2 * time.Hour) {
			got = append(got, fmt.Sprint(d.MessageId, " after ", d.at.Sub(began).Round(slack)))
		}
		if diff := cmp.Diff([]string{"alone after 1s", "long after 1h1m0s", "behind it after 1h1m0s"}, got); diff != "" {
			t.Errorf("arrivals: -want +got:\n%s", diff)
		}
	})
}

// mixed returns a random delay below longest. It divides half of the delays by 10, half of these again by 10, and so on, so
// that short delays are frequent.
func mixed(random *rand.Rand, longest time.Duration) time.Duration {
	d := time.Duration(random.Int64N(int64(longest)))
	for random.IntN(2) == 0 {
		d /= 10
	}
	return d
}

// quantiles formats the distribution of the durations by which messages are late.
func quantiles(late []time.Duration) string {
	slices.Sort(late)
	at := func(q float64) time.Duration { return late[int(q*float64(len(late)-1))].Round(100 * time.Microsecond) }
	return fmt.Sprintf("%d messages, late by min %s, p50 %s, p99 %s, max %s", len(late), at(0), at(.5), at(.99), at(1))
}
