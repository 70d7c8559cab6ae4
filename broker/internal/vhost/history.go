package vhost

import (
	"slices"
	"sync"

	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/route"
)

// defaultHistory is the length of a history without an argument, as in RabbitMQ.
const defaultHistory = 20

// history contains the last messages of an exchange of the type [route.RecentHistory]. A queue receives them when it is
// bound.
type history struct {
	mu       sync.Mutex
	messages []*queue.Message // oldest first
	length   int64
	meter    *queue.Meter
}

// keepHistory makes an exchange keep its last messages. The caller holds VHost.mu.
func (v *VHost) keepHistory(x *route.Exchange[*Queue]) {
	h := &history{length: defaultHistory, meter: v.config.Meter}
	if value, found := x.Arguments.Get(lengthOfHistory); found {
		h.length, _ = integer(value)
	}
	x.Passed = func(m route.Source) { h.add(m.(*queue.Message)) }
	v.histories[x] = h
}

func (h *history) add(m *queue.Message) {
	if skip, _ := m.Headers.Get("x-recent-history-no-store"); skip == true {
		return
	}
	kept := *m
	kept.Headers = nil // as in Deliver
	h.mu.Lock()
	defer h.mu.Unlock()
	if int64(len(h.messages)) == h.length {
		h.meter.Add(-h.messages[0].Size())
		h.messages = slices.Delete(h.messages, 0, 1)
	}
	h.messages = append(h.messages, &kept)
	h.meter.Add(kept.Size())
}

func (h *history) all() []*queue.Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.messages)
}

func (h *history) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.messages {
		h.meter.Add(-m.Size())
	}
	h.messages = nil
}

// sendHistory delivers the history of an exchange to the destination of a new binding.
func (v *VHost) sendHistory(x *route.Exchange[*Queue], to destination) {
	v.mu.RLock()
	h := v.histories[x]
	v.mu.RUnlock()
	if h == nil {
		return
	}
	messages := h.all()
	if to.Exchange != nil {
		slices.Reverse(messages) // like RabbitMQ
	}
	for _, m := range messages {
		queues := []*Queue{to.Queue}
		if to.Exchange != nil {
			m = withHeaders(m)
			v.mu.RLock()
			queues = v.route(nil, to.Exchange, m)
			v.mu.RUnlock()
		}
		Deliver(m, queues)
	}
}
