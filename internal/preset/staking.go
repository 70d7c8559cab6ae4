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

// Names of the staking design on the wire. The names of the wait queue and the failed queue, and the routing key of the
// wait queue, consist of the work queue's name and a suffix.
const (
	StakingExchange = "common_dlx"

	StakingActiveQueue        = "active_staking_queue"
	StakingUnbondingQueue     = "unbonding_staking_queue"
	StakingWithdrawQueue      = "withdraw_staking_queue"
	StakingExpiredQueue       = "expired_staking_queue"
	StakingStatsQueue         = "staking_stats_queue"
	StakingBtcInfoQueue       = "btc_info_queue"
	StakingConfirmedInfoQueue = "confirmed_info_queue"

	StakingDelaySuffix  = "_delay"       // suffix of the wait queue
	StakingKeySuffix    = "_routing_key" // suffix of the routing key with which common_dlx is bound to the wait queue
	StakingFailedSuffix = "_failed"      // suffix of the failed queue, which only Reprise uses

	StakingAttemptsHeader = "x-processing-attempts"
)

// StakingRetryDelay is the delay of a retry in the design.
const StakingRetryDelay = 5 * time.Second

// Staking is the queue design of the Babylon staking indexer and its downstream services. The design has these objects for
// each kind of event:
//
//	"" ─► {queue} ─► handler ─► failed ─────► "" ─► {queue}_delay ─ the copy expires ─► "" ─► {queue}
//	         │                     └─ retries exhausted ─► "" ─► {queue}_failed
//	         └ rejected ─► common_dlx ─ {queue}_routing_key ─► {queue}_delay
//
// Programs publish all messages through the default exchange, with the queue name as the routing key. The header
// x-processing-attempts (int32) counts the retries of a message. The property expiration of a copy is its delay in the wait
// queue.
//
// The failed queue is not part of the design, whose programs requeue without limit or drop messages. Only Reprise declares
// and uses the failed queue. Its name does not conflict with the objects of the other programs.
//
// # Messages that the broker dead-letters into a wait queue stay there
//
// A message that {queue} dead-letters enters the wait queue without an expiration. The message stays there and blocks all
// later messages, because RabbitMQ expires messages only at the head of a queue. The programs of the design do not reject
// messages. But a quorum queue of RabbitMQ 4, with its default delivery limit of 20, dead-letters a message that was
// delivered 21 times and never settled. A worker parks such a message earlier: by default on RabbitMQ 4.3 and later, and on
// 4.0 to 4.2 if WorkerConfig.CrashLimit is set. Classic queues do not have a delivery limit.
//
// To protect programs that do not limit crashes, disable the delivery limit with a policy, because the arguments of an
// existing queue cannot be changed:
//
//	rabbitmqctl set_policy --apply-to quorum_queues staking '_queue$' '{"delivery-limit": -1}'
//
// A message without an expiration that blocks the wait queue is at the head of the queue. Move it out, so that the other
// messages can expire:
//
//	reprise redrive --from {queue}_delay --to {queue}_failed --limit 1
//
// DelayTTL, or a message-ttl policy, returns rejected messages that arrive after it was set. But a message that expired in
// {queue}, or exceeded its delivery limit, would then complete a cycle without a rejection, and the broker would drop it
// (https://www.rabbitmq.com/docs/dlx#routing).
type Staking struct {
	// Queues are the names of the work queues that Topology declares. Default: the seven queues of the design.
	Queues []string

	// RetryDelay is the expiration of each retried copy, in whole milliseconds; default 5 s. If programs use different
	// values, a copy also waits for earlier copies with longer delays.
	RetryDelay time.Duration

	// DelayTTL is the x-message-ttl of each wait queue, in whole milliseconds. A rejected message then returns after this
	// time instead of blocking the wait queue. It must match the queues of the other programs, and must not be shorter
	// than RetryDelay. Set it only if messages neither expire in the work queues nor exceed a delivery limit there.
	// Default: none, as in all published versions of the programs.
	DelayTTL time.Duration

	// QueueType is the x-queue-type of every queue: "quorum", the default, or "classic". It must match queue_type in the
	// configuration of the other programs. Queues from the first weeks of the design were declared without the argument.
	// Use "classic" for them.
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

// Validate reports settings that the design does not support, and explains how to fix them.
func (s Staking) Validate() error {
	errs := []error{
		validateDelay("Staking.RetryDelay", s.RetryDelay, StakingRetryDelay),
		validateDelay("Staking.DelayTTL", s.DelayTTL, 0),
		validateQueueType("Staking.QueueType", s.QueueType, `"quorum"`),
	}
	if d := s.withDefaults(); d.DelayTTL != 0 && d.DelayTTL < d.RetryDelay {
		errs = append(errs, fmt.Errorf("preset: Staking.DelayTTL must be at least RetryDelay (%s): got %s (0 means none)", d.RetryDelay, d.DelayTTL))
	}
	for _, queue := range s.Queues {
		switch err := s.route(queue).ValidateQueue(queue); {
		case queue == "":
			errs = append(errs, errors.New("preset: Staking.Queues must not contain an empty name"))
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

// Topology returns the exchange, and the queues and the binding for each of s.Queues.
func (s Staking) Topology() topology.Topology {
	var t topology.Topology
	for _, queue := range s.withDefaults().Queues {
		t = t.Merge(s.objects(queue))
	}
	return t
}

// objects returns the objects of one work queue. RabbitMQ ignores the argument of the exchange. Reprise sets the argument
// because the programs of the design set it.
func (s Staking) objects(queue string) topology.Topology {
	s = s.withDefaults()
	failed := topology.Table{"x-queue-type": s.QueueType}
	if s.QueueType == "quorum" {
		// The broker must not drop a parked message, even if readers requeue it many times.
		failed["x-delivery-limit"] = unlimited
	}
	delay := topology.Table{
		"x-queue-type":              s.QueueType,
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": queue,
	}
	if s.DelayTTL != 0 {
		delay["x-message-ttl"] = s.DelayTTL.Milliseconds()
	}
	return topology.Topology{
		Exchanges: []topology.Exchange{
			{Name: StakingExchange, Kind: topology.Direct, Args: topology.Table{"x-queue-type": s.QueueType}},
		},
		Queues: []topology.Queue{
			{Name: queue + StakingDelaySuffix, Args: delay},
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

// Strategy returns the retry strategy of the design, for a worker on any work queue. The worker declares only the objects of
// its work queue. Every retry waits for RetryDelay. The worker ignores the delays of Policy and handlers, because a longer
// delay would block all later copies, including copies of other programs. The Policy limits the number of attempts, which
// includes the attempts of other programs.
func (s Staking) Strategy() topology.Strategy {
	return topology.Strategy{
		Route: designRoute{stakingRoute{s.withDefaults()}, s},
		Marks: topology.CountUp{Header: StakingAttemptsHeader},
	}
}

// route returns the route of one work queue.
func (s Staking) route(queue string) topology.MessageTTL {
	return topology.MessageTTL{
		WaitAddress:    topology.Address{Key: "{queue}" + StakingDelaySuffix},
		FailedAddress:  topology.Address{Key: "{queue}" + StakingFailedSuffix},
		Infrastructure: s.objects(queue),
	}
}

func (s Staking) validateQueue(queue string) error {
	if !slices.Contains(s.withDefaults().Queues, queue) && (strings.HasSuffix(queue, StakingDelaySuffix) || strings.HasSuffix(queue, StakingFailedSuffix)) {
		return fmt.Errorf("preset: work queue of Staking must not have the name of a wait queue or a failed queue: got %q (if it is a work queue, add it to Staking.Queues)", queue)
	}
	return s.route(queue).ValidateQueue(queue)
}

// stakingRoute is a topology.MessageTTL with a fixed delay and an infrastructure that depends on the work queue.
type stakingRoute struct{ Staking }

// Topology implements topology.Route.
func (r stakingRoute) Topology(queue string) topology.Topology { return r.objects(queue) }

// Wait implements topology.Route.
func (r stakingRoute) Wait(d topology.Delivery, _ time.Duration) (topology.Hop, error) {
	return r.route(d.Queue).Wait(d, r.RetryDelay)
}

// Failed implements topology.Route.
func (r stakingRoute) Failed(d topology.Delivery) topology.Hop { return r.route(d.Queue).Failed(d) }
