package amqpvalue

// ComparedArguments returns the arguments of an existing queue of a type that a repeated declaration must match, in the order
// in which RabbitMQ 4.3 reports differences. The type of a queue without x-queue-type is classic. RabbitMQ ignores all other
// arguments. https://www.rabbitmq.com/docs/queues#property-equivalence
func ComparedArguments(kind string) []string {
	if kind == "quorum" {
		return []string{
			"x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-expires", "x-max-length",
			"x-max-length-bytes", "x-max-in-memory-length", "x-max-in-memory-bytes", "x-overflow",
			"x-single-active-consumer", "x-queue-type", "x-quorum-initial-group-size", "x-delivery-limit", "x-message-ttl",
			"x-queue-leader-locator", "x-consumer-disconnected-timeout", "x-consumer-timeout", "x-delayed-retry-type",
			"x-delayed-retry-min", "x-delayed-retry-max",
		}
	}
	return []string{
		"x-expires", "x-message-ttl", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-max-length",
		"x-max-length-bytes", "x-max-priority", "x-overflow", "x-queue-mode", "x-queue-version",
		"x-single-active-consumer", "x-queue-type", "x-queue-master-locator", "x-queue-leader-locator",
	}
}
