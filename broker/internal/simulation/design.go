package simulation

import (
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/topology"
)

// design is a retry topology that a work can use. Its fields state the documented properties of the topology.
type design struct {
	Name    string
	Copies  bool // a retry is a copy of the message, so a fault can leave two copies.
	Counts  bool // the broker counts attempts, including deliveries whose connection was closed.
	Loses   bool // the worker acknowledges the original first, so a fault can lose the message.
	Once    bool // duplicates are suppressed; a duplicate delivered during an attempt counts as an attempt.
	Quorum  bool // the work queue must be a quorum queue
	Rewinds bool // after a fault, a key is repeated from an earlier message on
	Marks   bool // parked messages have the header x-reprise-attempts
	Build   func(w Work) built
	Foreign func(w Work, b built) foreign // nil: only workers consume the queue
}

// built is a design with the names and settings of one work.
type built struct {
	config        reprise.WorkerConfig    // Queue, Policy, Strategy, Order, Topology
	exchange, key string                  // destination of published messages
	queueOf       func(key string) string // queue of the messages with a key, which is their destination; nil: key is the routing key
	failed        string

	// low returns the shortest permitted delay after a failed attempt. The argument asked is the delay that the handler
	// requested; negative: none.
	low func(attempt int, asked time.Duration) time.Duration
}

// routingKey returns the routing key of a message.
func (b built) routingKey(m *Message) string {
	if b.queueOf != nil {
		return b.queueOf(m.Key)
	}
	return b.key
}

func findDesign(name string) design {
	for _, d := range designs {
		if d.Name == name {
			return d
		}
	}
	panic("simulation: design " + name + " not found")
}

// classic returns the topology with the queues that the work requires: a classic work queue, a failed queue with a
// length limit, or both.
func classic(w Work, queue string) (t topology.Topology) {
	if w.Classic {
		t.Queues = append(t.Queues, topology.Queue{Name: queue, Args: topology.Table{"x-queue-type": "classic"}})
	}
	if w.FailedMax > 0 {
		t.Queues = append(t.Queues, topology.Queue{Name: topology.FailedQueue(queue), Args: topology.Table{
			"x-queue-type": "quorum", "x-max-length": w.FailedMax, "x-overflow": "reject-publish",
		}})
	}
	return t
}

// policy returns the retry policy of a work.
func policy(w Work) reprise.Policy {
	return reprise.Policy{MaxAttempts: w.Attempts, Backoff: backoff.List(w.Delays)}
}

// byPolicy returns the delay function of routes that follow the policy and the delays that a handler requests.
func byPolicy(w Work) func(int, time.Duration) time.Duration {
	return func(attempt int, asked time.Duration) time.Duration {
		if asked >= 0 {
			return asked
		}
		return backoff.List(w.Delays).Delay(attempt)
	}
}

// fixed returns the delay function of routes with one wait queue.
func fixed(w Work) func(int, time.Duration) time.Duration {
	return func(int, time.Duration) time.Duration { return w.Delays[0] }
}

// plain builds a design in which all queue names derive from the name of the work queue.
func plain(w Work, r topology.Route, low func(int, time.Duration) time.Duration) built {
	return built{
		config: reprise.WorkerConfig{Queue: w.Name, Policy: policy(w), Strategy: topology.Strategy{Route: r}, Topology: classic(w, w.Name)},
		key:    w.Name, failed: topology.FailedQueue(w.Name), low: low,
	}
}

// longest returns the longest expiration in the design of the CDN purge service. If other programs consume the queue,
// it returns a high value, because they do not limit the expiration.
func longest(w Work) time.Duration {
	if w.Foreign > 0 {
		return 20 * 24 * time.Hour
	}
	return max(w.Delays[0], w.Delays[2])
}

func queueType(w Work) string {
	if w.Classic {
		return ""
	}
	return "quorum"
}

var designs = []design{
	{Name: "buckets", Copies: true, Marks: true, Build: func(w Work) built { return plain(w, nil, byPolicy(w)) }},
	{Name: "levels", Copies: true, Marks: true, Build: func(w Work) built { return plain(w, topology.Levels{}, byPolicy(w)) }},
	{Name: "ackfirst", Copies: true, Loses: true, Marks: true, Build: func(w Work) built {
		b := plain(w, nil, byPolicy(w))
		b.config.Order = reprise.AckThenPublish
		return b
	}},
	{Name: "deadletter", Quorum: true, Build: func(w Work) built {
		return plain(w, topology.DeadLettering{Delay: w.Delays[0]}, fixed(w))
	}},
	{Name: "requeue", Counts: true, Quorum: true, Build: func(w Work) built {
		return plain(w, topology.Requeuing{}, func(int, time.Duration) time.Duration { return 0 })
	}},
	{Name: "delayed", Counts: true, Quorum: true, Build: func(w Work) built {
		r := topology.DelayedRetry{Min: w.Delays[0], Max: w.Delays[2]}
		return plain(w, r, func(attempt int, _ time.Duration) time.Duration { return min(r.Max, time.Duration(attempt)*r.Min) })
	}},
	{Name: "coverart", Copies: true, Foreign: foreignCoverArt, Build: func(w Work) built {
		p := preset.CoverArt{RetryDelay: w.Delays[0], Retries: w.Attempts - 1, QueueType: queueType(w)}
		return built{
			config:   reprise.WorkerConfig{Queue: "cover-art-archive.index", Strategy: p.Strategy()},
			exchange: "cover-art-archive", key: "index", failed: preset.CoverArtFailedQueue, low: fixed(w),
		}
	}},
	{Name: "staking", Copies: true, Marks: true, Foreign: foreignStaking, Build: func(w Work) built {
		kind := "quorum"
		if w.Classic {
			kind = "classic"
		}
		p := preset.Staking{Queues: []string{w.Name}, RetryDelay: w.Delays[0], QueueType: kind}
		return built{
			config: reprise.WorkerConfig{Queue: w.Name, Strategy: p.Strategy(), Policy: policy(w)},
			key:    w.Name, failed: w.Name + "_failed", low: fixed(w),
		}
	}},
	{Name: "workretry", Foreign: foreignWorkRetry, Build: func(w Work) built {
		p := preset.WorkRetry{Prefix: w.Name + ".", RetryDelay: w.Delays[0], QueueType: queueType(w)}
		return built{
			config:   reprise.WorkerConfig{Queue: p.Queue(), Strategy: p.Strategy(), Policy: policy(w)},
			exchange: w.Name + ".WorkExchange", failed: p.Queue() + ".failed", low: fixed(w),
		}
	}},
	{Name: "cdnpurge", Copies: true, Marks: true, Foreign: foreignCDNPurge, Build: func(w Work) built {
		p := preset.CDNPurge{First: w.Delays[0], Max: longest(w), Jitter: -1, QueueType: queueType(w), WorkersOnly: true}
		return built{
			config:   reprise.WorkerConfig{Queue: "cdn-purge", Strategy: p.Strategy(), Policy: policy(w)},
			exchange: "cdn-purge", key: "tag", failed: "cdn-purge.failed",
			low: func(attempt int, _ time.Duration) time.Duration {
				d := p.First
				for range attempt - 1 {
					d = min(p.Max, 3*d)
				}
				return d
			},
		}
	}},
}
