package reprisetest

import (
	"slices"
	"strings"
	"time"
)

// Drain waits until no message is under way in any virtual host; the package
// comment says what that is. In a bubble, time passes as it must, and no further.
// The test fails, and is told where messages are, if that takes longer than
// Config.Patience.
//
// With AckThenPublish a failed message is for a moment in no queue, and only its
// client knows of it. Drain asks those of [Broker.Client] and [Broker.Work]: a worker
// of that order needs a client from there, and not one of reprise.Dial.
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
