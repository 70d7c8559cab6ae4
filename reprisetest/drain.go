package reprisetest

import (
	"slices"
	"strings"
	"time"
)

// Drain waits until no message is under way in any virtual host. In a bubble, time
// passes as far as that needs, and no further.
// The test fails, and is told where messages are, if that takes longer than
// Config.Patience.
//
// With AckThenPublish a failed message is for a moment in no queue, and only its
// client knows of it. Drain asks those of [Broker.Client] and [Broker.Work]: a worker
// of that order needs a client from there, and not one of reprise.Dial.
//
// Under way is a message that
//
//   - is with a consumer, unsettled, or with a handler of a worker whose client
//     came from [Broker.Client], or on the way from there as a copy;
//   - is ready in a queue that is consumed from. A queue stays one until all
//     connections that consumed from it have been closed in order: a worker that
//     pauses, or has lost its connection, comes back. [Worker.Stop] ends it at
//     once;
//   - waits in a queue that dead-letters what expires, be it a queue by design or
//     one that nobody consumes from, but for those named *.failed;
//   - waits for a delayed retry of a quorum queue, or has been dead-lettered and
//     has not arrived.
//
// All others are at rest: in a failed queue, in a queue without consumers that
// nothing leads out of, such as one that another program consumes in production,
// or a work queue for which the test runs no worker. So is what was delivered to
// a consumer that need not acknowledge.
//
// What is still to be published does not count: a publisher that is blocked, a
// timer of the handler's own. A message that is scheduled does, from the moment it
// is in a queue. Whose consumer settles a message, and how many consumers a queue
// has, makes no difference.
func (b *Broker) Drain(t TB) {
	t.Helper()
	began := time.Now()
	if b.await(b.drained) {
		return
	}
	var left, rest []string
	for _, s := range b.survey() {
		if s.underWay() {
			left = append(left, "\n\t"+s.String())
		} else if text := s.String(); text != "" {
			rest = append(rest, "\n\t"+text)
		}
	}
	for _, f := range b.aloft() {
		left = append(left, "\n\t"+f)
	}
	text := strings.Join(left, "")
	if rest != nil {
		text += "\nat rest:" + strings.Join(rest, "")
	}
	t.Fatalf("reprisetest: Drain: after %s messages are still under way:%s", time.Since(began), text)
}

// drained reports whether nothing is under way, and if not, when something
// happens next that no client has a part in.
func (b *Broker) drained() (yes bool, again time.Time) {
	first := b.survey()
	for _, s := range first {
		if s.underWay() {
			return false, next(first)
		}
	}
	if b.flying() {
		return false, time.Time{}
	}
	// A message on its way from one queue to the other may have been in neither
	// when it was looked for. Then the queues' counts have changed meanwhile.
	return b.virtual || slices.Equal(first, b.survey()), time.Time{}
}

// next is when the first message expires or is due.
func next(all []standing) (at time.Time) {
	earliest := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	for _, s := range all {
		if s.dies {
			earliest(s.Expires)
		}
		earliest(s.Due)
		if s.Dead > 0 {
			earliest(time.Now().Add(time.Second)) // the broker sends them again every few seconds
		}
	}
	return at
}
