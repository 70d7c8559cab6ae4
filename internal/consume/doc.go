// Package consume passes the messages of one queue to an [Owner], which handles and
// settles them.
//
// The package guarantees:
//
//   - at most Concurrency attempts run at a time, at most Prefetch messages are
//     unsettled, and no handler starts during a pause
//   - a message is settled on the channel that delivered it, or not at all
//   - a suspected poison message is handled alone
//   - a message that cannot start before the acknowledgement timeout is requeued
//   - consumption resumes after any failure of a connection, channel or consumer
//   - when Run returns, no attempt is running, unless it returns ErrDrainTimeout
//
// The files, in the order in which a delivery passes through them:
//
//	consumer.go    Run: consecutive sessions, and the drain at the end
//	session.go     one channel, with its deliveries and acknowledgements
//	subscribe.go   consecutive subscriptions on the channel
//	dispatch.go    deliveries wait, and attempts start for them
//	admission.go   slots, limiter, circuit breaker, pauses
//	burst.go       collects equal messages (debounce)
//	delivery.go    a delivery and the methods with which its owner settles it
//
// The package imports topology, backoff and internal/{ack,amqpconn,amqpvalue,guard,retry}.
package consume
