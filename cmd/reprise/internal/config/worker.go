package config

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/topology"
)

// Bounds of numbers, beyond which they are a slip.
const (
	MaxAttempts    = 1_000_000
	maxConcurrency = 10_000
	maxPrefetch    = math.MaxUint16
)

// workers reads the list of workers; a preset gives several.
func (v value) workers(e *exchanges) []Worker {
	items, _ := v.items("at least one worker: - {queue: NAME, exec: [PROGRAM]}")
	queues := map[string]int{} // the line of each queue's worker
	before := len(v.problems)
	var found []located
	for _, item := range items {
		f, ok := item.fields("a worker")
		if !ok {
			continue
		}
		var some []located
		if _, isPreset := f.get("preset"); isPreset {
			some = f.preset()
		} else {
			some = append(some, f.worker(e))
		}
		f.finish()
		for _, w := range some {
			if line, taken := queues[w.Queue]; taken && w.Queue != "" {
				v.decoder.fail(w.at, "queue %s has a worker already, on line %d: merge the two, with concurrency: 2 or more", quoted(w.Queue), line)
				continue
			}
			queues[w.Queue] = w.at.Line
			found = append(found, w)
		}
	}
	sound := len(v.problems) == before
	clashes := newContradictions()
	var all []Worker
	for _, w := range found {
		if sound {
			clashes.add(v.decoder, w)
		}
		all = append(all, w.Worker)
	}
	return all
}

// located is a worker with the place that names its queue.
type located struct {
	Worker
	at Position
}

// worker reads a worker with a queue of its own.
func (f *fields) worker(e *exchanges) located {
	w := located{at: f.at}
	queue, named := f.get("queue")
	if named {
		w.Queue, named = queue.ownName("orders", len(topology.FailedQueue("")))
		w.at = f.keyAt("queue")
	} else {
		f.missing("a worker has no queue: add queue: NAME (or preset: NAME)", "queue", "preset")
	}
	f.handler(&w.Worker)
	f.retries(&w.Worker)
	f.pace(&w.Worker)
	f.limits(&w.Worker)
	f.read("bind", func(x value) { w.Topology = e.bind(x, w.Queue) })
	f.refuse("belongs to a preset: write attempts: 5 for 4 retries, and backoff: {fixed: 4h} for the delay", "retries", "retry_delay")
	f.refuse("belongs to a preset: write one worker per queue", "queues")
	if amqpvalue.IsWaitQueue(w.Queue) {
		queue.fail("queue %s is a wait queue, its messages return by themselves: name a work queue", quoted(w.Queue))
	} else if err := w.Strategy.ValidateQueue(w.Queue); err != nil && named {
		queue.fail("%s", strings.TrimPrefix(err.Error(), "topology: "))
	}
	if named && len(f.problems) == 0 {
		f.invalid(w.validate())
	}
	return w
}

// retries reads how a message that failed comes back, how often and when.
func (f *fields) retries(w *Worker) {
	if x, ok := f.get("route"); ok {
		w.Strategy.Route = x.route()
		w.Policy.Backoff = delays(w.Strategy.Route)
	}
	f.policy(w, func(f *fields) { f.unheard(w.Strategy.Route) })
	f.settle(w)
}

// policy reads how often and when a message comes back. What the way back takes no
// notice of is refused, here and in rules.
func (f *fields) policy(w *Worker, unheard func(*fields)) {
	unheard(f)
	f.integerInto("attempts", &w.Policy.MaxAttempts, 1, MaxAttempts)
	f.durationInto("give_up_after", &w.Policy.GiveUpAfter, time.Nanosecond)
	f.read("backoff", func(x value) { w.Policy.Backoff = x.backoff() })
	f.read("rules", func(x value) { w.Policy.Rules = x.rules(w, unheard) })
}

// settle reads in which order a failed message and its copy are settled.
func (f *fields) settle(w *Worker) {
	const lossy = "ack-then-publish"
	if x, ok := f.get("settle"); ok {
		if s, _ := x.oneOf("publish-then-ack", lossy); s == lossy {
			w.Order = reprise.AckThenPublish
		}
	}
}

// pace reads how much a worker does at once, before whom, and how it stops.
func (f *fields) pace(w *Worker) {
	f.integerInto("concurrency", &w.Concurrency, 1, maxConcurrency)
	if x, ok := f.get("prefetch"); ok {
		w.Prefetch, ok = x.integer(1, maxPrefetch)
		if ok && w.Prefetch < max(w.Concurrency, 1) {
			x.fail("prefetch (%d) is less than concurrency (%d), some handlers would never have work: raise it, or remove it", w.Prefetch, w.Concurrency)
		}
	}
	if x, ok := f.get("priority"); ok {
		n, _ := x.integer(math.MinInt32, math.MaxInt32)
		w.Priority = int32(n)
	}
	f.durationInto("drain", &w.DrainTimeout, time.Millisecond)
}

// validate is what the library says of a worker.
func (w Worker) validate() error {
	c := w.WorkerConfig
	c.Handler = reprise.HandlerFunc(func(context.Context, *reprise.Message) error { return nil }) // it gets one later
	return c.Validate()
}

// invalid reports what the library refuses although this package did not.
func (f *fields) invalid(err error) {
	if err != nil {
		f.fail("%v", err)
	}
}
