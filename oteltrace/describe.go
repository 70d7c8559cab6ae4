package oteltrace

import (
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// describe returns the attributes that publishing and handling have in common.
func describe(operation, destination, key string) []attribute.KeyValue {
	attributes := append(make([]attribute.KeyValue, 0, 10), // both add some
		semconv.MessagingSystemRabbitMQ,
		semconv.MessagingOperationName(operation),
		semconv.MessagingDestinationName(destination),
	)
	if key != "" {
		attributes = append(attributes, semconv.MessagingRabbitMQDestinationRoutingKey(key))
	}
	return attributes
}

// destination names one as the conventions for RabbitMQ do: by exchange, routing
// key and, for consumers, queue, of which what is empty is left out, and the queue
// where the routing key says the same.
func destination(exchange, key, queue string) string {
	if queue == key {
		queue = ""
	}
	parts := slices.DeleteFunc([]string{exchange, key, queue}, func(part string) bool { return part == "" })
	if len(parts) == 0 {
		return "amq.default"
	}
	return strings.Join(parts, ":")
}
