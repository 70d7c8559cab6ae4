package reprisetest

import (
	"slices"
	"strings"
	"time"
)

// Drain waits until no message is in flight in any virtual host. In a bubble, time advances only as
// far as necessary. If the wait exceeds Config.Timeout, the test fails and reports the location of
// the messages.
//
// With AckThenPublish, a failed message is briefly in no queue, and only the client of its worker knows about it. Drain
// observes the clients of [Broker.Client] and [Broker.Work]. A worker with AckThenPublish therefore needs a client from
// one of these two methods, not from reprise.Dial.
//
// For Drain, a message is in flight in these cases:
//
//   - The message is unacked at a consumer.
//   - The message is in a handler of a worker whose client comes from [Broker.Client], or is a copy that
//     such a worker publishes.
//   - The message is ready in a consumed queue. A queue counts as consumed until all connections that
//     consumed from it have been closed cleanly, because a paused or disconnected worker consumes again
//     later. After [Worker.Stop], the queue counts as consumed only if it has other consumers.
//   - The message waits in a queue that dead-letters expired messages, with or without consumers. Queues
//     named *.failed do not count.
//   - The message waits for a delayed retry of a quorum queue.
//   - The message has been dead-lettered and has not arrived in its next queue.
//
// All other messages are at rest. Examples are messages in a failed queue, and messages in a work queue without a worker
// in the test. Messages in a queue without consumers and without a further destination are at rest, too, even if another
// program consumes the queue in production. Messages that were delivered to a consumer without acknowledgements are also
// at rest.
//
// Drain does not wait for future publishes, such as a publish that is blocked or that a timer of a handler starts. A
// scheduled message counts as in flight when it reaches a queue. It does not matter which consumer settles a message,
// or how many consumers a queue has.
func (b *Broker) Drain(t TB) {
	t.Helper()
	began := time.Now()
	if b.await(b.drained) {
		return
	}
	var left, rest []string
	for _, s := range b.survey() {
		if s.inFlight() {
			left = append(left, "\n\t"+s.String())
		} else if text := s.String(); text != "" {
			rest = append(rest, "\n\t"+text)
		}
	}
	for _, f := range b.unsettled() {
		left = append(left, "\n\t"+f)
	}
	text := strings.Join(left, "")
	if rest != nil {
		text += "\nat rest:" + strings.Join(rest, "")
	}
	t.Fatalf("reprisetest: Drain: timed out after %s; messages are still in flight:%s", time.Since(began), text)
}

// drained reports whether no message is in flight. Otherwise, again is the time of the next event that no client
// causes, or zero.
func (b *Broker) drained() (yes bool, again time.Time) {
	first := b.survey()
	for _, s := range first {
		if s.inFlight() {
			return false, next(first)
		}
	}
	if b.hasUnsettled() {
		return false, time.Time{}
	}
	// The first survey may have missed a message between two queues. In that case, the counts of the queues have changed.
	return b.virtual || slices.Equal(first, b.survey()), time.Time{}
}

// next returns the earliest time at which a message expires or is due, or the broker retries a dead letter, or zero.
func next(all []queueState) (at time.Time) {
	earliest := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, s := range all {
		if s.movesExpired {
			earliest(s.Expires)
		}
		earliest(s.Due)
		if s.Dead > 0 {
			earliest(time.Now().Add(time.Second)) // the broker retries every few seconds
		}
	}
	return at
}
