package publish

import (
	"errors"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpconn"
)

// proven is what the broker is known to take, with this connection. The default exchange and
// the connection's own user need no proof. A message that is not proven is in flight alone
// (see probeLane): if the broker refuses it by closing the channel, no other message loses its
// answer, and none has to be published a second time.
type proven struct {
	mu        sync.RWMutex
	exchanges map[string]bool
	users     map[string]bool
	suspects  map[destination]bool // unproven, whatever their exchange
	largest   int                  // body
	limit     int                  // of a body, if the broker has told it; else 0
}

const (
	// harmless is a size that every broker takes.
	harmless = 64 << 10

	// maxProven bounds the remembered names. Beyond it all are forgotten, and proven again.
	maxProven = 10_000

	// proofTimeout bounds how long an unproven message holds up other unproven ones. The broker
	// refuses at once; only a confirm may take long. After it the message counts as proven.
	proofTimeout = time.Second
)

// forget forgets everything.
func (k *proven) forget(user string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.exchanges, k.users = map[string]bool{"": true}, map[string]bool{"": true, user: true}
	k.suspects = map[destination]bool{}
	k.largest, k.limit = harmless, 0
}

// has reports whether messages like m are proven.
func (k *proven) has(m *Message) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.exchanges[m.Exchange] && k.users[m.Message.UserID] && len(m.Message.Body) <= k.largest &&
		(len(k.suspects) == 0 || !k.suspects[m.destination()])
}

// refused notes that the broker has closed a channel for one of some messages: what these
// had proven may not hold any more.
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
		k.suspects[m.destination()] = true // a permission may be for one routing key
	}
}

// note notes the result of an unproven message: nil while there is none.
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

// tooLarge returns an error for a body that the broker is known to refuse.
func (k *proven) tooLarge(m *Message) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return tooLarge(m, k.limit)
}
