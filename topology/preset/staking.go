package preset

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise/topology"
)

// Names of the staking design on the wire. A queue's own three names are made of
// its name and a suffix.
const (
	StakingExchange = "common_dlx"

	StakingActiveQueue        = "active_staking_queue"
	StakingUnbondingQueue     = "unbonding_staking_queue"
	StakingWithdrawQueue      = "withdraw_staking_queue"
	StakingExpiredQueue       = "expired_staking_queue"
	StakingStatsQueue         = "staking_stats_queue"
	StakingBtcInfoQueue       = "btc_info_queue"
	StakingConfirmedInfoQueue = "confirmed_info_queue"

	StakingDelaySuffix  = "_delay"       // of the wait queue
	StakingKeySuffix    = "_routing_key" // of the key that common_dlx knows the wait queue by
	StakingFailedSuffix = "_failed"      // of the failed queue, which is Reprise's

	StakingAttemptsHeader = "x-processing-attempts"
)

// StakingRetryDelay is how long the design holds back a message that is retried.
const StakingRetryDelay = 5 * time.Second

// Staking is the queue design of the Babylon staking indexer and the services
// behind it: one of these for each kind of event.
//
//	"" ─► {queue} ─► handler ─► failed ─────► "" ─► {queue}_delay ─ the copy expires ─► "" ─► {queue}
//	         │                     └─ spent ─► "" ─► {queue}_failed
//	         └ rejected ─► common_dlx ─ {queue}_routing_key ─► {queue}_delay
//
// Everything goes by queue name through the default exchange. Header
// x-processing-attempts (int32) counts how often a message was put back; a copy
// in the wait queue expires by its own property expiration.
//
// The failed queue is not in the design: its programs put back without end, or
// drop. Only Reprise declares and uses it, and nothing that they declare is
// another for it.
//
// # What the broker itself puts into a wait queue stays there
//
// A message that {queue} dead-letters comes into the wait queue without an
// expiration: it does not leave it, and neither does any behind it, since
// RabbitMQ expires messages at the head only. No program of the design rejects
// messages. But a quorum queue of RabbitMQ 4 dead-letters, at its default
// delivery limit of 20, what was delivered 21 times and never settled. A worker
// parks such a message before that: by default with RabbitMQ 4.3 and later, on
// 4.0 to 4.2 where WorkerConfig.CrashLimit is set. Classic queues have no such limit.
//
// Programs without such a limit are protected by a policy, since the queue's
// arguments cannot be changed; then the broker does not give up on a message:
//
//	rabbitmqctl set_policy --apply-to quorum_queues staking '_queue$' '{"delivery-limit": -1}'
//
// The remedy, where it has happened, moves the first message of the wait queue away; the
// others follow:
//
//	reprise redrive --from {queue}_delay --to {queue}_failed --limit 1
//
// A message-ttl for the wait queue is no remedy. It would let the message out,
// and the broker would drop it: it came back to a queue by dead-lettering alone,
// without anybody having rejected it (https://www.rabbitmq.com/docs/dlx#routing).
type Staking struct {
	// Queues are those that Topology declares; any names will do. Default: the
	// seven above.
	Queues []string

	// RetryDelay is the expiration of each copy that is retried, whole
	// milliseconds; default 5 s. Where programs differ in it, the shorter delays
	// wait behind the longer.
	RetryDelay time.Duration

	// QueueType is the x-queue-type of every queue: "quorum", the default, or
	// "classic". It must be what the other programs have, as queue_type in their
	// configuration. Queues without the argument, of the design's first weeks,
	// are "classic".
	QueueType string
}

func (s Staking) withDefaults() Staking {
	if len(s.Queues) == 0 {
		s.Queues = []string{
			StakingActiveQueue, StakingUnbondingQueue, StakingWithdrawQueue, StakingExpiredQueue,
			StakingStatsQueue, StakingBtcInfoQueue, StakingConfirmedInfoQueue,
		}
	}
	s.RetryDelay = cmp.Or(s.RetryDelay, StakingRetryDelay)
	s.QueueType = cmp.Or(s.QueueType, "quorum")
	return s
}

// Validate reports what the design cannot express and what to write instead.
func (s Staking) Validate() error {
	errs := []error{
		validateDelay("Staking.RetryDelay", s.RetryDelay, StakingRetryDelay),
		validateQueueType("Staking.QueueType", s.QueueType, `for "quorum"`),
	}
	for _, queue := range s.Queues {
		switch err := s.route(queue).ValidateQueue(queue); {
		case queue == "":
			errs = append(errs, errors.New("preset: Staking.Queues has an empty name: leave it out"))
		case err != nil:
			errs = append(errs, fmt.Errorf("preset: Staking.Queues: %w", err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := s.Topology().Validate(); err != nil {
		return fmt.Errorf("preset: Staking.Queues: %w", err)
	}
	return nil
}

// Topology returns the exchange, and all that each of the Queues needs.
func (s Staking) Topology() topology.Topology {
	var t topology.Topology
	for _, queue := range s.withDefaults().Queues {
		t = t.Merge(s.of(queue))
	}
	return t
}

// of returns what one queue needs. The exchange's argument means nothing to
// RabbitMQ, which keeps it: the design's programs write it.
func (s Staking) of(queue string) topology.Topology {
	s = s.withDefaults()
	failed := topology.Table{"x-queue-type": s.QueueType}
	if s.QueueType == "quorum" {
		// However often somebody looks at a parked message, it stays.
		failed["x-delivery-limit"] = unlimited
	}
	return topology.Topology{
		Exchanges: []topology.Exchange{
			{Name: StakingExchange, Kind: topology.Direct, Args: topology.Table{"x-queue-type": s.QueueType}},
		},
		Queues: []topology.Queue{
			{Name: queue + StakingDelaySuffix, Args: topology.Table{
				"x-queue-type":              s.QueueType,
				"x-dead-letter-exchange":    "",
				"x-dead-letter-routing-key": queue,
			}},
			{Name: queue, Args: topology.Table{
				"x-queue-type":              s.QueueType,
				"x-dead-letter-exchange":    StakingExchange,
				"x-dead-letter-routing-key": queue + StakingKeySuffix,
			}},
			{Name: queue + StakingFailedSuffix, Args: failed},
		},
		Bindings: []topology.Binding{
			{Exchange: StakingExchange, Queue: queue + StakingDelaySuffix, RoutingKey: queue + StakingKeySuffix},
		},
	}
}

// Strategy returns how messages of the design are retried and parked, for a
// worker on any of its queues: such a worker declares what its own queue needs,
// and nothing of the others. Every retry waits RetryDelay, whatever a Policy or a
// handler asks for: one that waits longer would hold up all behind it, those of
// other programs included. How many attempts there are is for the Policy to say;
// those that other programs made count.
func (s Staking) Strategy() topology.Strategy {
	return topology.Strategy{
		Route: designed{stakingRoute{s.withDefaults()}, s},
		Marks: topology.CountUp{Header: StakingAttemptsHeader},
	}
}

// route returns that of one work queue's messages.
func (s Staking) route(queue string) topology.MessageTTL {
	return topology.MessageTTL{
		WaitAddress:    topology.Address{Key: "{queue}" + StakingDelaySuffix},
		FailedAddress:  topology.Address{Key: "{queue}" + StakingFailedSuffix},
		Infrastructure: s.of(queue),
	}
}

func (s Staking) validateQueue(queue string) error {
	if !slices.Contains(s.withDefaults().Queues, queue) && (strings.HasSuffix(queue, StakingDelaySuffix) || strings.HasSuffix(queue, StakingFailedSuffix)) {
		return fmt.Errorf("preset: Staking: %q has the name of a wait queue or a failed queue: name the work queue, "+
			"or if it is one, list it in Staking.Queues", queue)
	}
	return s.route(queue).ValidateQueue(queue)
}

// stakingRoute is topology.MessageTTL with one delay for all, and with an
// infrastructure that depends on the work queue.
type stakingRoute struct{ Staking }

// Topology implements topology.Route.
func (r stakingRoute) Topology(queue string) topology.Topology { return r.of(queue) }

// Wait implements topology.Route.
func (r stakingRoute) Wait(d topology.Delivery, _ time.Duration) (topology.Hop, error) {
	return r.route(d.Queue).Wait(d, r.RetryDelay)
}

// Failed implements topology.Route.
func (r stakingRoute) Failed(d topology.Delivery) topology.Hop { return r.route(d.Queue).Failed(d) }
