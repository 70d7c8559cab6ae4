// Package interop has programs of others, in other languages, talk to the embedded broker, unchanged, and to RabbitMQ to
// see that they do there the same. Some of them, python/beside.py and node/beside.js, are the four published designs, and
// work on the same queues as the examples, at the same time.
package interop
