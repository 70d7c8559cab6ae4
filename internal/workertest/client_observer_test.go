package workertest

import (
	"errors"
	"testing"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
)

// kinds returns the kinds of events, for comparison.
func kinds(all []reprise.Event) (out []reprise.EventKind) {
	for _, e := range all {
		out = append(out, e.Kind)
	}
	return out
}

// The observer receives an event for each change of a connection and for each published message.
func TestClientObserverReceivesEvents(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		seen := &events{}
		r := newRaw(t, b.URL)
		c, publishing := dialAlarmed(t, b, func(c *reprise.Config) { c.Observer = seen })
		queue := queueFor(t, r, c, nil)
		publishing.inject(t, lowOnMemory)
		c.log.wait(t, "publishing blocked", 1)
		publishing.inject(t, "")
		c.log.wait(t, "publishing unblocked", 1)
		m := &reprise.Message{RoutingKey: queue}
		if err := errors.Join(c.Publish(t.Context(), m), c.PublishBatch(t.Context(), numbered(2, func(int) (string, string) { return "", queue }))); err != nil {
			t.Fatal(err)
		}
		if err := c.Publish(t.Context(), &reprise.Message{RoutingKey: "no-such-queue"}); err == nil {
			t.Fatal("Publish succeeded without a queue")
		}
		_ = publishing.Close()
		c.log.wait(t, "connected", 3)
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		published := seen.of(reprise.EventPublished)
		if len(published) != 4 {
			t.Fatalf("published: got %v, want 4 events", published)
		}
		for i, e := range published {
			_, unroutable := errors.AsType[*reprise.UnroutableError](e.Err)
			if e.Took <= 0 || (i == 3) != unroutable || (i < 3) != (e.Err == nil) {
				t.Errorf("event %d: got %+v, want a duration, and UnroutableError only for event 3", i, e)
			}
		}
		if published[0].MessageID != m.MessageID || published[2].MessageID != "1" {
			t.Errorf("message IDs: got events %v, want %q for the first and 1 for the third", published, m.MessageID)
		}
		for connection, want := range map[string][]reprise.EventKind{
			"publish": {
				reprise.EventConnected, reprise.EventBlocked, reprise.EventUnblocked,
				reprise.EventDisconnected, reprise.EventConnected, reprise.EventDisconnected,
			},
			"consume": {reprise.EventConnected, reprise.EventDisconnected},
		} {
			var got []reprise.Event
			for _, e := range seen.of(reprise.EventConnected, reprise.EventDisconnected, reprise.EventBlocked, reprise.EventUnblocked) {
				if e.Connection == connection {
					got = append(got, e)
				}
			}
			if len(got) != len(want) {
				t.Fatalf("%s connection: got events %v, want %v", connection, kinds(got), want)
			}
			for i, e := range got {
				if e.Kind != want[i] || (e.Err != nil) != (e.Kind == reprise.EventDisconnected || e.Kind == reprise.EventBlocked) {
					t.Errorf("%s connection: event %d: got %+v, want %v", connection, i, e, want[i])
				}
			}
			if last := got[len(got)-1]; !errors.Is(last.Err, reprise.ErrClosed) {
				t.Errorf("%s connection: closed with %v, want ErrClosed", connection, last.Err)
			}
		}
	})
}
