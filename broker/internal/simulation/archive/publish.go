package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
)

// Publish publishes n messages to random work queues. In half of the calls, all messages have the same class. Faults do
// not affect the client that Publish uses.
func (s *System) Publish(ctx context.Context, n int, random *rand.Rand) {
	names := slices.Sorted(maps.Keys(classes))
	only := ""
	if random.IntN(2) == 0 {
		only = names[random.IntN(len(names))]
	}
	var messages []*reprise.Message
	var without []*Sent
	for range n {
		m := s.newOrder(random, names, only)
		exchange, key := address(m.Queue)
		if m.MessageID == "" {
			without = append(without, m)
			continue
		}
		messages = append(messages, &reprise.Message{
			Exchange: exchange, RoutingKey: key, MessageID: m.MessageID, Body: m.Body, ContentType: "application/json", Type: m.Class,
			CorrelationID: "c" + m.MessageID, Headers: map[string]any{"tenant": tenant(m.N), "price": int32(m.N)},
		})
	}
	s.publishWithoutID(ctx, without)
	err := s.client.PublishBatch(ctx, messages)
	s.note("published %d messages, and %d without an id: %v", len(messages), len(without), err)
	if failed, ok := errors.AsType[*reprise.BatchError](err); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, f := range failed.Failed { // it is unknown whether the broker stored the message
			var o Order
			if json.Unmarshal(messages[f.Index].Body, &o) == nil {
				s.gone[o.N] = "not confirmed"
			}
		}
	}
}

// address returns the exchange and the routing key of a work queue.
func address(queue string) (exchange, key string) {
	switch queue {
	case Mails:
		return "", Mails
	case Covers:
		return preset.CoverArtExchange, coverKey
	}
	return shop, orderKey
}

// newOrder creates and records a new message.
func (s *System) newOrder(random *rand.Rand, names []string, only string) *Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &Sent{Queue: []string{Orders, Orders, Mails, Covers}[random.IntN(4)]}
	if s.Foreign && random.IntN(3) == 0 {
		m.Queue = Covers
	}
	m.Order = Order{N: len(s.sent) + 1, Class: names[random.IntN(len(names))], Amount: 1 + random.IntN(8), Note: fmt.Sprintf("note%d", random.IntN(8))}
	if only != "" {
		m.Class = only
	}
	if m.Class == "poison" {
		m.Amount = 9
	}
	if m.Queue == Covers || random.IntN(8) > 0 {
		m.MessageID = fmt.Sprintf("m-%d", m.N)
	}
	m.Body, _ = json.Marshal(m.Order)
	s.sent = append(s.sent, m)
	return m
}

// SetDown sets whether the downstream system fails for a class of messages.
func (s *System) SetDown(class string, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending {
		s.down[class] = down
	}
}

// Served returns an HTTP client that passes its requests to a handler, without a network.
func Served(h http.Handler) *http.Client { return &http.Client{Transport: handlerTransport{h}} }

type handlerTransport struct{ http.Handler }

// RoundTrip implements [http.RoundTripper].
func (s handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}
