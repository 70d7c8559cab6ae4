// Package consume delivers the messages of one queue to an [Owner], which handles and
// settles them.
//
// It promises:
//
//   - at most Concurrency attempts run at a time, at most Prefetch messages are
//     unsettled, and none is handled during a pause
//   - a message is settled on the channel that delivered it, or not at all
//   - a message that may be what ends the process is handled alone
//   - a message that cannot start before the acknowledgement timeout is given back
//   - consuming resumes after any failure of a connection, channel or consumer
//   - when Run returns, no attempt is running, unless it returns ErrDrainTimeout
//
// A delivery's way through the package, in the order of the files:
//
//	consumer.go    Run: one session after the other, and the drain at the end
//	session.go     one channel, with its deliveries and acknowledgements
//	subscribe.go   one subscription after the other on the channel
//	dispatch.go    a delivery waits, and an attempt starts for it
//	admission.go   slots, limiter, circuit breaker, pauses
//	burst.go       equal messages are gathered (debounce)
//	delivery.go    the delivery, as its owner handles and settles it
//
// It imports the packages topology, backoff and internal/{ack,amqpconn,guard,retry}.
package consume
