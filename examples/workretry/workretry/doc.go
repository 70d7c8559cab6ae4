// Package workretry demonstrates the exchange pair WorkExchange and RetryExchange. It also compares four ways of
// retrying the same flaky jobs, while processes exit and connections break.
//
//	WorkExchange ─────────► WorkQueue ─► handler ─► nil ──────────────► acknowledged
//	     ▲                      │           └─────► error, none left ─► copy to WorkQueue.failed
//	     │                      └ rejected ─► RetryExchange
//	     └─ expires, 5 min ─ RetryQueue ◄────────┘
//
// The body of a job specifies the number of its failures, so that programs in any
// language can publish and process jobs:
//
//	{"job": 7, "fails": 2}     fails in its first two attempts, succeeds in the third
//	{"job": 8, "fails": -1}    never succeeds
//
// A job with any other body succeeds in its first attempt.
//
// # The four ways
//
//	requeue                 basic.reject with requeue=true
//	publish, then ack       a copy to a wait queue, confirmed; then basic.ack
//	ack, then publish       basic.ack; then a copy to a wait queue
//	dead-letter exchange    basic.reject with requeue=false: the pair above
//
// [Compare] processes the same jobs in each way, one job after another. While some of the jobs are retried or parked,
// it injects one of these failures at a defined frame:
//
//	the process exits before anything is settled
//	the process exits between the two steps
//	the confirm of the copy is lost, with the connection
//	the consuming connection is lost
//
// Each program connects through a wrapped net.Conn (reprise.Config.Dial) that parses AMQP frames. The wrapper cuts the
// connection immediately before the chosen frame. All earlier frames arrive, and neither the chosen frame nor a later
// frame arrives, so the result is deterministic.
//
// A job is lost if it is neither processed nor parked. A job is duplicated if two messages with its ID are processed or
// parked.
//
//	sent + duplicated = done + parked + lost
//
// docs/guarantees.md lists the results for all frames.
package workretry
