package workretry

import (
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// A way is a configuration with which a worker retries failed jobs.
type way struct {
	name     string
	queue    string // work queue; exchange and key route to it
	exchange string
	key      string
	order    reprise.Order
	strategy topology.Strategy

	retry, park steps
}

// ways returns the four ways. Each way has separate queues, whose names begin with the prefix.
func ways(prefix string, delay time.Duration) []way {
	pair := Design{RetryDelay: delay, Prefix: prefix}
	buckets := topology.Strategy{Route: topology.Buckets{}}
	return []way{
		{
			name:  "requeue",
			queue: prefix + "requeue", key: prefix + "requeue",
			strategy: topology.Strategy{Route: topology.Requeuing{}},
			retry:    rejects, park: publishesFirst,
		},
		{
			name:  "publish, then ack",
			queue: prefix + "publish-then-ack", key: prefix + "publish-then-ack",
			strategy: buckets,
			order:    reprise.PublishThenAck,
			retry:    publishesFirst, park: publishesFirst,
		},
		{
			name:  "ack, then publish",
			queue: prefix + "ack-then-publish", key: prefix + "ack-then-publish",
			strategy: buckets,
			order:    reprise.AckThenPublish,
			retry:    acksFirst, park: acksFirst,
		},
		{
			name:  "dead-letter exchange",
			queue: pair.Queue(), exchange: prefix + preset.WorkRetryWorkExchange,
			strategy: pair.Strategy(),
			retry:    rejects, park: publishesFirst,
		},
	}
}

// topology returns the queues and exchanges of a way, including the wait queues.
func (w way) topology(delay time.Duration) (topology.Topology, error) {
	route := w.strategy.WithDefaults().Route
	d := topology.Delivery{Queue: w.queue, Exchange: w.exchange, RoutingKey: w.key}
	wait, err := route.Wait(d, delay)
	return route.Topology(w.queue).Merge(wait.Topology, route.Failed(d).Topology), err
}

// steps maps a Break to the frame at which it happens, and to its effect. A Break without an entry cannot happen in the
// way.
//
// docs/guarantees.md contains the results for all frames.
type steps map[Break]struct {
	frame
	kills  bool
	effect effect
}

// effect is the effect of a break on a job.
type effect int

const (
	intact effect = iota
	lost
	duplicated
)

// ends returns the number of messages with the job's ID that are processed or parked.
func (f effect) ends() int { return map[effect]int{intact: 1, lost: 0, duplicated: 2}[f] }

func (f effect) String() string {
	return map[effect]string{intact: "·", lost: "lost", duplicated: "duplicated"}[f]
}

var (
	// rejects applies to requeue and to the dead-letter exchange, which settle a message in a single step. The broker
	// has the message both before and after this step.
	rejects = steps{
		endsBefore:     {frame{consuming, toBroker, basicReject}, true, intact},
		losesConsuming: {frame{consuming, toBroker, basicReject}, false, intact},
	}
	// publishesFirst applies if the worker publishes a copy and then acks the original. Between the two steps, the
	// broker has both messages. Three ways also park a message in this order.
	publishesFirst = steps{
		endsBefore:     {frame{publishing, toBroker, basicPublish}, true, intact},
		endsHalfway:    {frame{consuming, toBroker, basicAck}, true, duplicated},
		losesConfirm:   {frame{publishing, toClient, basicAck}, false, duplicated},
		losesConsuming: {frame{consuming, toBroker, basicAck}, false, duplicated},
	}
	// acksFirst applies if the worker acks the original and then publishes a copy. Between the two steps, only the
	// process has the message. After the ack, the worker sends basic.qos; the basic.qos-ok proves that the ack has
	// arrived. If the confirm of the copy is lost, the worker does not publish the copy again. In this comparison, such
	// a copy has always arrived.
	acksFirst = steps{
		endsBefore:     {frame{consuming, toBroker, basicAck}, true, intact},
		endsHalfway:    {frame{publishing, toBroker, basicPublish}, true, lost},
		losesConfirm:   {frame{publishing, toClient, basicAck}, false, intact},
		losesConsuming: {frame{consuming, toClient, basicQosOk}, false, lost},
	}
)

// steps returns the steps that apply to the break of the job.
func (w way) steps(j Job) steps {
	if j.parking {
		return w.park
	}
	return w.retry
}

// faultFor returns the fault for the break of the job, or nil if the job has no break or the break cannot happen in the
// way.
func (w way) faultFor(j Job) *fault {
	at, found := w.steps(j)[j.breaks]
	if !found {
		return nil
	}
	return &fault{frame: at.frame, kills: at.kills, injected: make(chan struct{})}
}

// effect returns the expected effect of the break of the job.
func (w way) effect(j Job) effect { return w.steps(j)[j.breaks].effect }
