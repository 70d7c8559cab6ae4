package topology

import "github.com/reprisemq/reprise/internal/amqpvalue"

// Quorum queues add these headers to each delivery after the first. x-delivery-count is the number of earlier failed
// deliveries. Since RabbitMQ 4.3, x-acquired-count is the number of all earlier deliveries, including deliveries that
// were requeued deliberately. https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling
const (
	headerDeliveryCount = "x-delivery-count"
	headerAcquiredCount = "x-acquired-count"
)

// deliveryCount returns the number of earlier failed deliveries, as counted by the queue.
func deliveryCount(d Delivery) int { return amqpvalue.DeliveryCount(d.Redelivered, d.Headers) }
