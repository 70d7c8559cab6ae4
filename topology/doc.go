// Package topology describes exchanges, queues and bindings of a broker, and the path of a failed
// message through them, as plain values. The package performs no I/O. Package reprise declares the
// topology and publishes the messages.
//
// # Values
//
// A [Topology] is a set of exchanges, queues and bindings. A Queue with only a name is durable.
//
// # Strategy = Route × Marks
//
// Two independent parts determine the path of a failed message:
//
//	Route   the path of a copy           wait queue, expiration, failed queue
//	Marks   the headers on the copy      attempts so far, errors, origin
//
// A [Strategy] consists of a [Route] and [Marks]. The default is [Buckets] and [Trail]:
//
//	               ┌──────────────────────────── expires: dead letter ─┐
//	               ▼                                                   │
//	publish ─► work queue ─► handler ─► failed ─► {queue}.wait.1000-1250 (no consumers)
//	                             │                {queue}.wait.1250-1562
//	                             │                …
//	                             └────► parked ─► {queue}.failed
//
// [Levels], [WaitQueue], [MessageTTL] and [GrowingTTL] also publish copies. With [DelayedRetry], [Requeuing] and
// [DeadLettering], the broker counts the attempts, and [Deliveries] and [Deaths] read the counts. These Routes do not
// publish copies for retries, except for Requeuing.Classic. docs/delays.md compares all Routes.
//
// Existing systems are combinations of the same two parts, for example a [WaitQueue] and a [CountDown] of the remaining
// retries. See package preset.
//
// Names and header values are a wire format, which programs in other languages read and write. They do not change between
// releases. The package imports only package internal/amqpvalue and the standard library.
package topology
