package workretry

import (
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
	"github.com/reprisemq/reprise/topology/preset"
)

// A way is one to have a failed job come back.
type way struct {
	name     string
	queue    string // where the work is, and how it gets there
	exchange string
	key      string
	order    reprise.Order
	strategy topology.Strategy

	retry, park steps
}

// ways returns all four, each with queues of its own, whose names begin with the
// prefix.
func ways(prefix string, delay time.Duration) []way {
	pair := preset.WorkRetry{RetryDelay: delay, Prefix: prefix}
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

// topology is all that there is of a way, wait queues included.
func (w way) topology(delay time.Duration) (topology.Topology, error) {
	route := w.strategy.WithDefaults().Route
	d := topology.Delivery{Queue: w.queue, Exchange: w.exchange, RoutingKey: w.key}
	wait, err := route.Wait(d, delay)
	return route.Topology(w.queue).Merge(wait.Topology, route.Failed(d).Topology), err
}

// steps are what a job that failed takes to be settled: where each break strikes,
// and what it comes to. A break without a frame has no moment to happen in.
//
// docs/guarantees.md has the same for every frame there is.
type steps map[Break]struct {
	frame
	kills bool
	fate  fate
}

// fate is what becomes of a job's message.
type fate int

const (
	intact fate = iota
	lost
	duplicated
)

// ends is how many times such a job is done or parked.
func (f fate) ends() int { return map[fate]int{intact: 1, lost: 0, duplicated: 2}[f] }

func (f fate) String() string {
	return map[fate]string{intact: "·", lost: "lost", duplicated: "duplicated"}[f]
}

var (
	// rejects is one step: requeue, and the dead-letter exchange. The broker has
	// the message before, and after.
	rejects = steps{
		endsBefore:     {frame{consuming, toBroker, basicReject}, true, intact},
		losesConsuming: {frame{consuming, toBroker, basicReject}, false, intact},
	}
	// publishesFirst has the message there twice for a moment.
	publishesFirst = steps{
		endsBefore:     {frame{publishing, toBroker, basicPublish}, true, intact},
		endsHalfway:    {frame{consuming, toBroker, basicAck}, true, duplicated},
		losesConfirm:   {frame{publishing, toClient, basicAck}, false, duplicated},
		losesConsuming: {frame{consuming, toBroker, basicAck}, false, duplicated},
	}
	// acksFirst has it nowhere for a moment, but in the process. Whether the ack
	// has arrived it knows from the answer to the basic.qos behind it. A copy whose
	// confirm is lost is not published again: here it has arrived.
	acksFirst = steps{
		endsBefore:     {frame{consuming, toBroker, basicAck}, true, intact},
		endsHalfway:    {frame{publishing, toBroker, basicPublish}, true, lost},
		losesConfirm:   {frame{publishing, toClient, basicAck}, false, intact},
		losesConsuming: {frame{consuming, toClient, basicQosOk}, false, lost},
	}
)

// steps are those that the job's break is in.
func (w way) steps(j Job) steps {
	if j.parking {
		return w.park
	}
	return w.retry
}

// snare is for the job's break, or nil where nothing breaks.
func (w way) snare(j Job) *snare {
	at, found := w.steps(j)[j.breaks]
	if !found {
		return nil
	}
	return &snare{frame: at.frame, kills: at.kills, sprung: make(chan struct{})}
}

// fate is what is to become of the job.
func (w way) fate(j Job) fate { return w.steps(j)[j.breaks].fate }
