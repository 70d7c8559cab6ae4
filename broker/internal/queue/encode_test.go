package queue

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

var texts = rapid.SliceOfN(rapid.StringN(0, 20, 60), 1, 3)

func drawDeath(t *rapid.T) death {
	return death{
		queue:    rapid.String().Draw(t, "queue"),
		reason:   rapid.SampledFrom([]Reason{Rejected, Expired, MaxLength, DeliveryLimit}).Draw(t, "reason"),
		count:    rapid.Int64().Draw(t, "count"),
		time:     time.Unix(0, rapid.Int64().Draw(t, "time")),
		exchange: rapid.String().Draw(t, "exchange"),
		keys:     texts.Draw(t, "keys"), expiration: rapid.String().Draw(t, "expiration"),
	}
}

func drawMessage(t *rapid.T) *Message {
	m := &Message{
		Exchange: rapid.String().Draw(t, "exchange"), RoutingKey: rapid.String().Draw(t, "key"),
		Properties: rapid.SliceOf(rapid.Byte()).Draw(t, "properties"), Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
		TTL: NoTTL, Persistent: rapid.Bool().Draw(t, "persistent"), HasPriority: rapid.Bool().Draw(t, "has priority"),
		failures: rapid.Int64Range(0, 1<<62).Draw(t, "failures"), suspect: rapid.Bool().Draw(t, "suspect"),
	}
	if m.HasPriority {
		m.Priority = rapid.Uint8().Draw(t, "priority")
	}
	if rapid.Bool().Draw(t, "more keys") {
		m.CC, m.BCC = texts.Draw(t, "CC"), texts.Draw(t, "BCC")
	}
	if rapid.Bool().Draw(t, "died") {
		m.history = &deathHistory{published: rapid.Int().Draw(t, "published"), first: drawDeath(t)}
		for range rapid.IntRange(1, 3).Draw(t, "deaths") {
			m.history.deaths = append(m.history.deaths, drawDeath(t))
		}
	}
	return m
}

func TestMessageEncodingRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		encoded := m.Append([]byte("before"))[len("before"):]
		got, err := decodeMessage(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got, cmp.AllowUnexported(Message{}, deathHistory{}, death{}), cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
		// The decoder must reject an encoding that is truncated before the body.
		for n := range len(encoded) - len(m.Body) {
			if _, err := decodeMessage(encoded[:n]); err == nil {
				t.Fatalf("decodeMessage accepts the first %d of %d bytes", n, len(encoded))
			}
		}
	})
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add((&Message{Exchange: "e", RoutingKey: "k", Body: []byte("body")}).Append(nil))
	first := death{queue: "q", reason: Expired, count: 1, keys: []string{"k"}}
	f.Add((&Message{CC: []string{"a", "b"}, failures: 3, history: &deathHistory{first: first, deaths: []death{first}}}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		again, err := decodeMessage(m.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, again, cmp.AllowUnexported(Message{}, deathHistory{}, death{}), cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	})
}
