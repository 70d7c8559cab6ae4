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

// Keyless selects the treatment of messages without a key.
type Keyless int

const (
	// ParkKeyless parks the message with ErrNoKey.
	ParkKeyless Keyless = iota

	// HandleKeyless runs the handler without protection, so duplicates of the message are handled, too. The retry
	// copies of the message have an id, so from the second attempt on, duplicates of a copy are detected.
	HandleKeyless
)

// Maximum lengths of scopes and keys that are stored without hashing. With the slash between them, a scope and a key
// are shorter than the 1024 bytes that a Store must accept.
const (
	maxScope = 256
	maxKey   = 512
)

// keys determines the key of each message.
type keys struct {
	key     func(m *reprise.Delivery) string
	scope   string
	keyless Keyless
}

// of returns the key to store for m, or "" if m has no key. An id that the worker assigned is not a key, because a
// duplicate of the message would have a different id.
func (k keys) of(m *reprise.Delivery) string {
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
	// The first slash ends the scope, because escapeScope removes all slashes from the scope.
	return legible(escapeScope.Replace(scope), maxScope) + "/" + legible(id, maxKey)
}

var escapeScope = strings.NewReplacer("%", "%25", "/", "%2F")

const hashed = "sha256:"

// legible returns s, or a hash of s if a text column may not accept it. A message id may contain any bytes, and a key
// from Config.Key may have any length. A string that looks like a hash is also hashed, so that no publisher can choose the
// key of another message.
func legible(s string, longest int) string {
	if len(s) <= longest && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) && !strings.HasPrefix(s, hashed) {
		return s
	}
	return fmt.Sprintf("%s%x", hashed, sha256.Sum256([]byte(s)))
}

// checkKeyless returns the error that parks a message without a key, or nil if the handler may run.
func (k keys) checkKeyless(log *slog.Logger, m *reprise.Delivery) error {
	if k.keyless == ParkKeyless {
		return reprise.Park(ErrNoKey)
	}
	log.Warn("no key", "queue", m.Queue, "message_id", m.MessageID)
	return nil
}
