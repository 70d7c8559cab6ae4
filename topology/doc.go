// Package topology describes what exists on a broker, and the way a failed
// message travels through it, as plain values. It does no I/O: package reprise
// declares and publishes what this package only spells out.
//
// # Values
//
// A [Topology] is a set of exchanges, queues and bindings. Its zero values are
// the safe ones: a Queue with nothing but a name is durable.
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
// Other Routes wait in other ways:
//
//	Buckets         any delay up to 49 days, late by at most a fraction of itself
//	Levels          any delay up to 8½ years, exact to the second, a hop for each bit of it; also for scheduling
//	WaitQueue       one delay: one queue, behind an exchange
//	MessageTTL      any delay, but a short one waits behind a long one
//	GrowingTTL      as MessageTTL, each a multiple of the message's last one, which the broker has noted
//	DelayedRetry    delays that grow evenly, kept by the work queue itself (RabbitMQ 4.3.3)
//	Requeuing       none
//	DeadLettering   one delay, without a copy: the message is rejected
//
// The last three publish no copy. What cannot be written on one is counted by
// the broker, and read by Marks of their own, [Deliveries] and [Deaths].
//
// Systems that are already deployed have answered otherwise. They are
// combinations of the same two parts (see package preset), for instance one
// fixed [WaitQueue] and a [CountDown] of the retries that remain, or a
// [MessageTTL] and a [CountUp] of those that were made.
//
// Names and header values are a wire format: other programs, in other
// languages, read and write them. They do not change between releases.
package topology
