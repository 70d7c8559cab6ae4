// Package interop connects programs that use third-party clients, most of them in other languages, to the embedded
// broker, and to RabbitMQ for comparison. The programs python/foreign.py and node/foreign.js implement the four
// published designs, and consume from the same queues as the examples at the same time.
package interop
