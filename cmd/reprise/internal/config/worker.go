package config

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/amqpvalue"
	"github.com/reprisemq/reprise/internal/brief"
	"github.com/reprisemq/reprise/topology"
)

// Maximum values. Larger values are probably mistakes.
const (
	MaxAttempts    = 1_000_000
	maxConcurrency = 10_000
	maxPrefetch    = math.MaxUint16
)

// workers reads lists of workers. A preset adds several workers.
func (d *decoder) workers(lists []value, e *exchanges) []Worker {
	queues := map[string]Position{} // queue → position of its worker
	before := len(d.problems)
	var items []value
	for _, v := range lists {
		items = append(items, v.items("a list of workers such as - {queue: NAME, exec: [PROGRAM]}")...)
	}
	var found []locatedWorker
	for _, item := range items {
		f, ok := item.fields("a worker")
		if !ok {
			continue
		}
		var some []locatedWorker
		if _, isPreset := f.get("preset"); isPreset {
			some = f.preset()
		} else {
			some = append(some, f.worker(e))
		}
		f.finish()
		for _, w := range some {
			if first, taken := queues[w.Queue]; taken && w.Queue != "" {
				d.failAt(w.at, "queue %s has a worker %s: merge the workers, with concurrency: 2 or more", brief.Quoted(w.Queue), first.from(w.at))
				continue
			}
			queues[w.Queue] = w.at
			w.Source = fmt.Sprint(item.dir, item.contents(), w.Topology.Exchanges, w.Process.files())
			found = append(found, w)
		}
	}
	if len(d.problems) == before {
		d.contradictions(found)
	}
	var all []Worker
	for _, w := range found {
		all = append(all, w.Worker)
	}
	return all
}

// locatedWorker is a worker with the position of its queue name.
type locatedWorker struct {
	Worker
	at Position
}

// worker reads a worker with a single queue.
func (f *fields) worker(e *exchanges) locatedWorker {
	w := locatedWorker{at: f.at}
	queue, named := f.get("queue")
	if named {
		w.at = queue.keyAt
		w.Queue, named = ownName("orders", len(topology.FailedQueue("")))(queue.value)
	} else {
		f.missing("a worker needs a queue: add queue: NAME (or preset: NAME)", "queue", "preset")
	}
	f.handler(&w.Worker)
	if read(f, "route", &w.Strategy.Route, value.route) {
		w.Policy.Backoff = delays(w.Strategy.Route)
	}
	f.policy(&w.Worker, func(f *fields) { f.refuseIgnored(w.Strategy.Route) })
	f.pace(&w.Worker)
	f.limits(&w.Worker)
	f.with("bind", func(x value) { w.Topology = e.bind(x, w.Queue) })
	f.queueForm(&w.Worker)
	f.lease(&w.Worker)
	f.order(&w.Worker)
	f.lanes(&w.Worker)
	f.refuse("belongs to a preset; write attempts: 5 for 4 retries, and backoff: {fixed: 4h} for the delay", "retries", "retry_delay")
	f.refuse("belongs to a preset; add one worker per queue", "queues")
	if amqpvalue.IsWaitQueue(w.Queue) {
		queue.fail("queue %s is a wait queue, whose messages return automatically; use a work queue", brief.Quoted(w.Queue))
	} else if err := w.Strategy.ValidateQueue(w.Queue); err != nil && named {
		queue.fail("%s", strings.TrimPrefix(err.Error(), "topology: "))
	}
	if named && len(f.problems) == 0 {
		if err := w.validate(); err != nil { // reports problems that only the library detects
			f.fail("%v", err)
		}
	}
	return w
}

// queueForm reads the keys for queues that other programs also declare: the type of the work queue, a work queue without
// arguments, and an existing failed queue.
func (f *fields) queueForm(w *Worker) {
	read(f, "failed_queue", &w.Strategy.Route, func(x value) (topology.Route, bool) {
		name, ok := ownName("orders.dead", 0)(x)
		route := topology.ParkIn{Route: w.Strategy.Route, Queue: name}
		if err := route.Validate(); ok && err != nil {
			return nil, x.fail("%s", strings.TrimPrefix(err.Error(), "topology: "))
		}
		return route, ok
	})
	var form topology.Table
	typed := f.with("queue_type", func(x value) {
		if kind, ok := queueType(x); ok && x.mayDeclare(w) && kind == "classic" {
			failed := w.Strategy.WithDefaults().Route.Failed(topology.Delivery{Queue: w.Queue, RoutingKey: w.Queue})
			form = topology.Table{"x-queue-type": kind, "x-dead-letter-exchange": failed.Exchange, "x-dead-letter-routing-key": failed.RoutingKey}
		}
	})
	f.with("plain", func(x value) {
		if plain, ok := x.boolean(); ok && plain && x.mayDeclare(w) {
			if form = (topology.Table{}); typed {
				x.fail("plain: true must not be combined with queue_type: a plain queue has the default type of the virtual host")
			}
		}
	})
	if form != nil {
		w.Topology = w.Topology.Merge(topology.Topology{Queues: []topology.Queue{{Name: w.Queue, IfAbsent: true, Args: form}}})
	}
}

// mayDeclare refuses a route whose retries need their own arguments of the work queue.
func (v value) mayDeclare(w *Worker) bool {
	for _, q := range w.Strategy.WithDefaults().Route.Topology(w.Queue).Queues {
		if q.Name == w.Queue && !q.IfAbsent {
			return v.fail("%s must not be combined with this route, whose retries need arguments of the queue: remove %s", v.name, v.name)
		}
	}
	return true
}

// policy reads the number and delays of retries, and the order in which a message and its copy are settled. It refuses
// the keys that the route ignores, also in rules.
func (f *fields) policy(w *Worker, refuseIgnored func(*fields)) {
	refuseIgnored(f)
	read(f, "attempts", &w.Policy.MaxAttempts, integer(1, MaxAttempts))
	read(f, "give_up_after", &w.Policy.GiveUpAfter, duration(time.Nanosecond))
	read(f, "backoff", &w.Policy.Backoff, value.backoff)
	f.with("rules", func(x value) { w.Policy.Rules = x.rules(w, refuseIgnored) })
	read(f, "settle", &w.Order, choose(is("publish-then-ack", reprise.PublishThenAck), is("ack-then-publish", reprise.AckThenPublish)))
}

// pace reads the concurrency, the prefetch, the priority and the shutdown behavior of a worker.
func (f *fields) pace(w *Worker) {
	read(f, "concurrency", &w.Concurrency, integer(1, maxConcurrency))
	if p := w.Process; p != nil && p.Processes > max(w.Concurrency, 1) {
		f.fail("processes (%d) is more than concurrency (%d), which leaves processes idle: raise concurrency, or lower processes", p.Processes, max(w.Concurrency, 1))
	}
	read(f, "prefetch", &w.Prefetch, func(x value) (int, bool) {
		n, ok := integer(1, maxPrefetch)(x)
		if ok && n < max(w.Concurrency, 1) {
			return 0, x.fail("prefetch (%d) is less than concurrency (%d), which leaves handlers idle: raise it, or remove it", n, w.Concurrency)
		}
		return n, ok
	})
	read(f, "priority", &w.Priority, integer[int32](math.MinInt32, math.MaxInt32))
	read(f, "drain", &w.DrainTimeout, duration(time.Millisecond))
}

// validate returns the error, if any, that the library would return for the worker.
func (w Worker) validate() error {
	c := w.WorkerConfig
	c.Handler = reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return nil }) // placeholder for the later handler
	return c.Validate()
}
