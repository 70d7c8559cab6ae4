package claimcheck

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"

	"github.com/reprisemq/reprise"
)

// Header contains the key of the stored body.
const Header = "x-reprise-claim"

// DefaultThreshold is the default of Config.Threshold.
const DefaultThreshold = 128 << 10

// Store stores bodies. It must be safe for concurrent use. Dir is a Store of files; the module
// github.com/reprisemq/reprise/examples contains a Store for S3.
type Store interface {
	// Put stores a body under a key, which is the SHA-256 of the body in hexadecimal digits. When Put returns nil, the body
	// must be durable, and visible to Get in all processes. If the key exists, Put must renew the age of the body.
	Put(ctx context.Context, key string, body []byte) error

	// Get returns the body of a key. If the key is missing, the error should match fs.ErrNotExist.
	Get(ctx context.Context, key string) ([]byte, error)
}

// Config configures a Check. Store is required.
type Config struct {
	Store Store

	// Threshold is the largest size in bytes of a body that remains in its message. A negative value means that each body is
	// stored. Default: 128 KiB.
	Threshold int
}

// Check replaces large bodies by references, and restores them. It is safe for concurrent use.
type Check struct {
	store     Store
	threshold int
}

// New returns a Check. It returns an error if the Store is a Dir whose directory is missing.
func New(c Config) (*Check, error) {
	if c.Store == nil {
		return nil, errors.New("claimcheck: Config.Store must not be nil (claimcheck.Dir stores files)")
	}
	if dir, ok := c.Store.(Dir); ok {
		if err := dir.check(); err != nil {
			return nil, fmt.Errorf("claimcheck: %w", err)
		}
	}
	return &Check{c.Store, cmp.Or(c.Threshold, DefaultThreshold)}, nil
}

// BeforePublish stores the body of m, if it exceeds the Threshold, and replaces it by a reference. It is intended for
// reprise.Config.BeforePublish, which covers all methods of publishing, and for outbox.Config.BeforeInsert, which keeps large
// bodies out of the database. It does not change a message that already has a reference. If the Store fails, the message is
// not published. PublishBatch stores bodies one after the other.
func (c *Check) BeforePublish(ctx context.Context, m *reprise.Message) error {
	if IsReference(m) {
		return nil
	}
	if _, found := m.Headers[Header]; found {
		m.Headers = maps.Clone(m.Headers) // the program has replaced the body
		delete(m.Headers, Header)
	}
	if len(m.Body) <= max(c.threshold, -1) {
		return nil
	}
	hash := sha256.Sum256(m.Body)
	key := hex.EncodeToString(hash[:])
	if err := c.store.Put(ctx, key, m.Body); err != nil {
		return fmt.Errorf("claimcheck: cannot store the body: %w", err)
	}
	if m.Headers = maps.Clone(m.Headers); m.Headers == nil {
		m.Headers = make(map[string]any)
	}
	m.Headers[Header] = key
	m.Body = reference(key, len(m.Body))
	return nil
}

// IsReference reports whether the body of m is a reference to a stored body.
func IsReference(m *reprise.Message) bool {
	_, err := parse(m.Headers[Header], m.Body)
	return err == nil
}

// reference returns the body of a message whose body is stored. Operators read it. It is neither JSON nor a message of
// Protocol Buffers (whose wire types end at 5), so that a worker without the middleware parks it.
func reference(key string, size int) []byte {
	return fmt.Appendf(nil, "offloaded body of %d bytes, sha256 %s", size, key)
}

// parse returns the key of a message with a reference.
func parse(header any, body []byte) (key string, err error) {
	key, _ = header.(string)
	if raw, err := hex.DecodeString(key); err != nil || len(raw) != sha256.Size {
		return "", fmt.Errorf("claimcheck: header %s must be the SHA-256 of a body: got %.100q", Header, fmt.Sprint(header))
	}
	var size int
	if _, err := fmt.Sscanf(string(body), "offloaded body of %d bytes", &size); err != nil || string(reference(key, size)) != string(body) {
		return "", fmt.Errorf("claimcheck: body must be the reference for the header %s: got %.100q", Header, body)
	}
	return key, nil
}

// Middleware restores the body of a message with a reference. The handler receives a copy of the message without the
// Header; other messages are passed unchanged. Retries and parked messages keep the reference.
//
// If the Store has no such body, fails, or returns another body, the attempt fails with an error and is retried by the
// Policy, because the Store may be unavailable. A Rule can park a message whose body is missing:
// reprise.Rule{Match: reprise.MatchIs(fs.ErrNotExist), Park: true}. A message with an invalid reference is parked.
func (c *Check) Middleware(next reprise.Handler) reprise.Handler {
	return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
		header, found := m.Headers[Header]
		if !found {
			return next.Handle(ctx, m)
		}
		key, err := parse(header, m.Body)
		if err != nil {
			return reprise.Park(err)
		}
		body, err := c.store.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("claimcheck: cannot get the body: %w", err)
		}
		if hash := sha256.Sum256(body); hex.EncodeToString(hash[:]) != key {
			return fmt.Errorf("claimcheck: body of %d bytes in the store has another SHA-256 than %s", len(body), key)
		}
		restored := *m
		restored.Body, restored.Headers = body, maps.Clone(m.Headers)
		delete(restored.Headers, Header)
		return next.Handle(ctx, &restored)
	})
}
