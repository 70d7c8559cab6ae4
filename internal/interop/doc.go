// Package interop has programs of others, in other languages, talk to the embedded broker, unchanged, and to RabbitMQ to
// see that they do there the same.
package interop
