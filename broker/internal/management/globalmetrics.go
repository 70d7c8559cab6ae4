package management

import (
	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/stats"
)

// Labels of the metrics that RabbitMQ provides for the whole broker.
var (
	amqp091      = labels{{"protocol", "amqp091"}}
	classicQueue = label{"queue_type", "rabbit_classic_queue"}
	quorumQueue  = label{"queue_type", "rabbit_quorum_queue"}
)

const globalPrefix = "rabbitmq_global_messages_"

func (e *exposition) global(n *node.Node) {
	split := n.Stats.Messages.Split()
	sum := split.Sum()
	for _, m := range []struct {
		name, help string
		kind       stats.Kind
	}{
		{"received_total", "Total number of messages received from publishers", stats.Publish},
		{"received_confirm_total", "Total number of messages received from publishers expecting confirmations", stats.Confirmed},
		{"confirmed_total", "Total number of messages confirmed to publishers", stats.Confirm},
		{
			"unroutable_dropped_total",
			"Total number of messages published as non-mandatory into an exchange and dropped as unroutable", stats.Dropped,
		},
		{
			"unroutable_returned_total",
			"Total number of messages published as mandatory into an exchange and returned to the publisher as unroutable",
			stats.Returned,
		},
	} {
		e.family(globalPrefix+m.name, "counter", m.help)
		e.sample(globalPrefix+m.name, amqp091, int64(sum.Of(m.kind)))
	}
	for _, m := range []struct {
		name, help string
		of         func(*stats.Counts) uint64
	}{
		{"delivered_total", "Total number of messages delivered to consumers", (*stats.Counts).DeliverGet},
		{
			"delivered_consume_manual_ack_total",
			"Total number of messages delivered to consumers using basic.consume with manual acknowledgment", only(stats.Deliver),
		},
		{
			"delivered_consume_auto_ack_total",
			"Total number of messages delivered to consumers using basic.consume with automatic acknowledgment",
			only(stats.DeliverNoAck),
		},
		{
			"delivered_get_manual_ack_total",
			"Total number of messages delivered to consumers using basic.get with manual acknowledgment", only(stats.Get),
		},
		{
			"delivered_get_auto_ack_total",
			"Total number of messages delivered to consumers using basic.get with automatic acknowledgment", only(stats.GetNoAck),
		},
		{"get_empty_total", "Total number of times basic.get operations fetched no message", only(stats.GetEmpty)},
		{"redelivered_total", "Total number of messages redelivered to consumers", only(stats.Redeliver)},
		{"acknowledged_total", "Total number of messages acknowledged by consumers", only(stats.Ack)},
	} {
		e.family(globalPrefix+m.name, "counter", m.help)
		e.sample(globalPrefix+m.name, append(amqp091[:1:1], classicQueue), int64(m.of(&split.Classic)))
		e.sample(globalPrefix+m.name, append(amqp091[:1:1], quorumQueue), int64(m.of(&split.Quorum)))
	}
	e.dead(&n.Stats.Dead)
}

func only(k stats.Kind) func(*stats.Counts) uint64 {
	return func(c *stats.Counts) uint64 { return c.Of(k) }
}

// dead writes the numbers of dead-lettered messages for each reason and strategy. Only quorum queues have the strategy
// at_least_once and a delivery limit.
func (e *exposition) dead(d *stats.Dead) {
	for _, m := range []struct {
		name, help string
		reason     stats.Reason
		quorumOnly bool
	}{
		{"expired", "message TTL exceeded", stats.Expired, false},
		{"rejected", "basic.reject or basic.nack", stats.Rejected, false},
		{"maxlen", "overflow drop-head or reject-publish-dlx", stats.MaxLength, false},
		{"delivery_limit", "delivery-limit exceeded", stats.DeliveryLimit, true},
	} {
		name := globalPrefix + "dead_lettered_" + m.name + "_total"
		e.family(name, "counter", "Total number of messages dead-lettered due to "+m.help)
		for _, s := range []struct {
			name     string
			strategy stats.Strategy
		}{{"disabled", stats.Disabled}, {"at_most_once", stats.AtMostOnce}, {"at_least_once", stats.AtLeastOnce}} {
			strategy := label{"dead_letter_strategy", s.name}
			if !m.quorumOnly && s.strategy != stats.AtLeastOnce {
				e.sample(name, labels{classicQueue, strategy}, int64(d.Of(m.reason, false, s.strategy)))
			}
			e.sample(name, labels{quorumQueue, strategy}, int64(d.Of(m.reason, true, s.strategy)))
		}
	}
}
