package publish

import (
	"errors"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

// proven records the properties of messages that the broker has accepted on the current connection. The default
// exchange and the connection's user are proven from the start. An unproven message is in flight alone (see probeLane).
// If the broker refuses it by closing the channel, no other message on the channel is left unanswered, so the publisher
// does not republish any.
type proven struct {
	mu        sync.RWMutex
	exchanges map[string]bool
	users     map[string]bool
	suspects  map[destination]bool // unproven destinations, even if their exchange is proven
	largest   int                  // largest proven body
	limit     int                  // maximum size of a body; 0 means that the broker has not reported it
}

const (
	// acceptedSize is a body size that every broker accepts.
	acceptedSize = 64 << 10

	// maxProven limits the number of remembered names of each kind. At the limit, proven forgets all names of that kind.
	maxProven = 10_000

	// proofTimeout limits the time for which an unproven message delays other unproven messages. The broker refuses a
	// message immediately; only a confirm can take longer. After the timeout, the message counts as proven.
	proofTimeout = time.Second
)

// forget resets all proofs.
func (k *proven) forget(user string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.exchanges, k.users = map[string]bool{"": true}, map[string]bool{"": true, user: true}
	k.suspects = map[destination]bool{}
	k.largest, k.limit = acceptedSize, 0
}

// has reports whether the properties of m are proven.
func (k *proven) has(m *Message) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.exchanges[m.Exchange] && k.users[m.Message.UserID] && len(m.Message.Body) <= k.largest &&
		(len(k.suspects) == 0 || !k.suspects[m.destination()])
}

// refused records that the broker has closed a channel because of one of the messages. Their
// proofs may no longer be valid.
func (k *proven) refused(refusal *amqpconn.Refusal, messages []*Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if limit := sizeLimit(refusal); limit > 0 {
		k.limit = limit
		return
	}
	for _, m := range messages {
		delete(k.exchanges, m.Exchange)
		if m.Message.UserID != "" {
			delete(k.users, m.Message.UserID)
		}
		if len(k.suspects) >= maxProven {
			clear(k.suspects)
		}
		k.suspects[m.destination()] = true // a permission may apply to a single routing key
	}
}

// note records the result of an unproven message. A nil result means that the broker has confirmed the message, or that
// the result is still unknown.
func (k *proven) note(m *Message, result error) {
	unroutable, _ := errors.AsType[*UnroutableError](result)
	switch _, refused := errors.AsType[*RefusedError](result); {
	case refused, unroutable != nil && unroutable.Code == amqpconn.NotFound, errors.Is(result, ErrUnconfirmed):
		return
	}
	if errors.As(result, new(*TooLargeError)) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.largest = max(k.largest, len(m.Message.Body))
	delete(k.suspects, m.destination())
	for names, name := range map[*map[string]bool]string{&k.exchanges: m.Exchange, &k.users: m.Message.UserID} {
		if len(*names) >= maxProven {
			clear(*names)
		}
		(*names)[name] = true
	}
}

// tooLarge returns an error if the body of m exceeds the limit that the broker has reported.
func (k *proven) tooLarge(m *Message) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return tooLarge(m, k.limit)
}
