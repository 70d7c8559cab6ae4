package idempotent

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprisemq/reprise"
)

// Keyless is what becomes of a message that has no key.
type Keyless int

const (
	// ParkKeyless parks the message with ErrNoKey.
	ParkKeyless Keyless = iota

	// HandleKeyless runs the handler without protection: duplicates of the
	// message are handled as well. Its copies have an id: from its second attempt
	// on, it is protected from duplicates of these.
	HandleKeyless
)

// The longest scopes and keys that are stored as they are. Together with the sign
// between them they stay below what Store promises.
const (
	maxScope = 256
	maxKey   = 512
)

// keys finds the key of a message.
type keys struct {
	key     func(m *reprise.Message) string
	scope   string
	keyless Keyless
}

// of returns the key that is stored for m, or "" if it has none. The id that a worker
// has assigned is none: the same message can come with another one.
func (k keys) of(m *reprise.Message) string {
	if m.MessageIDAssigned {
		delivered := *m
		delivered.MessageID, delivered.MessageIDAssigned = "", false
		m = &delivered
	}
	id := m.MessageID
	if k.key != nil {
		id = k.key(m)
	}
	if id == "" {
		return ""
	}
	scope := cmp.Or(k.scope, m.Queue)
	// The first slash ends the scope, whatever queues and keys are called.
	return legible(escapeScope.Replace(scope), maxScope) + "/" + legible(id, maxKey)
}

var escapeScope = strings.NewReplacer("%", "%25", "/", "%2F")

const hashed = "sha256:"

// legible returns s, or a hash of it where a column for text would not take it:
// a message id is any bytes, and a key of the user's of any length. What looks like
// a hash is hashed, too, so that nobody can choose another's.
func legible(s string, longest int) string {
	if len(s) <= longest && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) && !strings.HasPrefix(s, hashed) {
		return s
	}
	return fmt.Sprintf("%s%x", hashed, sha256.Sum256([]byte(s)))
}

// without decides about a message without a key: an error parks it.
func (k keys) without(log *slog.Logger, m *reprise.Message) error {
	if k.keyless == ParkKeyless {
		return reprise.Park(ErrNoKey)
	}
	log.Warn("no key", "queue", m.Queue, "message_id", m.MessageID)
	return nil
}
