package oteltrace

import (
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// describe returns the attributes that publish and process spans have in common.
func describe(operation, destination, key string) []attribute.KeyValue {
	attributes := append(make([]attribute.KeyValue, 0, 10), // capacity for the attributes that the callers append
		semconv.MessagingSystemRabbitMQ,
		semconv.MessagingOperationName(operation),
		semconv.MessagingDestinationName(destination),
	)
	if key != "" {
		attributes = append(attributes, semconv.MessagingRabbitMQDestinationRoutingKey(key))
	}
	return attributes
}

// destination returns the destination name according to the OpenTelemetry conventions for RabbitMQ: exchange, routing
// key and, for consumers, queue, joined with colons. It omits empty parts, and the queue if it equals the routing key.
// If no part remains, it returns "amq.default".
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
