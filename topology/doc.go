// Package topology describes what exists on a broker, and the way a failed
// message travels through it, as plain values. It does no I/O: package reprise
// declares and publishes what this package only spells out.
//
// # Values
//
// A [Topology] is a set of exchanges, queues and bindings. A Queue with nothing but a name is
// durable.
//
// # Strategy = Route × Marks
//
// Two questions decide what happens to a message that failed, and they are
// independent of each other:
//
//	Route   which way does a copy take?      wait queue, expiration, failed queue
//	Marks   what is written on the copy?     attempts so far, errors, where it came from
//
// A [Strategy] is one answer to each. The default is [Buckets] and [Trail]:
//
//	               ┌──────────────────────────── expires: dead letter ─┐
//	               ▼                                                   │
//	publish ─► work queue ─► handler ─► failed ─► {queue}.wait.1000-1250 (no consumers)
//	                             │                {queue}.wait.1250-1562
//	                             │                …
//	                             └────► parked ─► {queue}.failed
//
// Other Routes are [Levels], [WaitQueue], [MessageTTL], [GrowingTTL], and without a copy
// [DelayedRetry], [Requeuing] and [DeadLettering]; docs/delays.md compares them. Without a copy
// the broker counts the attempts, and [Deliveries] and [Deaths] read them.
//
// Systems that are already deployed are combinations of the same two parts, for instance one
// fixed [WaitQueue] and a [CountDown] of the retries that remain: see package preset.
//
// Names and header values are a wire format: other programs, in other languages, read and write
// them. They do not change between releases. The package imports package backoff and the
// standard library only.
package topology
