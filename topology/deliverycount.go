package topology

import "github.com/reprisemq/reprise/internal/amqpvalue"

// Headers of quorum queues, from the second delivery on: how many before it
// failed; and, since 4.3, how many there were, those that were given back on
// purpose included.
// https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling
const (
	headerDeliveryCount = "x-delivery-count"
	headerAcquiredCount = "x-acquired-count"
)

// deliveryCount returns the count of the queue.
func deliveryCount(d Delivery) int { return amqpvalue.DeliveryCount(d.Redelivered, d.Headers) }
