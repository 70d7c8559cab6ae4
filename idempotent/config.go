package idempotent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise"
)

// Defaults of Config.
const (
	DefaultLease     = time.Minute
	DefaultRetention = 7 * 24 * time.Hour
)

// leastLease leaves room for an extension to fail and be tried again.
const leastLease = time.Second

// Config adjusts Middleware. The zero value means the defaults.
type Config struct {
	// Key tells messages apart: two with the same key are one. A message for
	// which it returns "" has no key. It is given the message without an id that the
	// worker has assigned (reprise.Message.MessageIDAssigned). Any text will do; one that is longer than
	// 512 bytes, or not printable, is stored as its SHA-256. Default: the message
	// id.
	Key func(m *reprise.Message) string

	// Scope is what the key has to be unique in. Workers of different scopes do
	// not know each other's keys. Default: the name of the work queue. Name one if
	// messages move from queue to queue, or if a message that is in several queues
	// is to be handled in one of them only.
	Scope string

	// Keyless says what becomes of a message without a key. Default
	// ParkKeyless: nothing could tell its duplicates.
	Keyless Keyless

	// Lease is how long a key stays claimed after its process died: so long a
	// message whose handler was cut off has to wait. While a handler runs, the
	// lease is extended each third of it, so a handler may run for longer. At
	// least 1 s. Default 1 min.
	Lease time.Duration

	// Retention is how long a key that is done is remembered. It has to be longer
	// than the time that may pass between a message and its duplicate: the longest
	// delay of the worker's Backoff, the time for which a publisher tries again,
	// and the time for which the workers may be down meanwhile. Default 7 days.
	Retention time.Duration

	// Logger receives the events listed at Middleware. Default: none.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.Retention = cmp.Or(c.Retention, DefaultRetention)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate reports settings that cannot work and what to write instead.
func (c Config) Validate() error {
	var errs []error
	if c.Lease != 0 && c.Lease < leastLease {
		errs = append(errs, fmt.Errorf("idempotent: Config.Lease %s: use at least %s, or 0 for %s", c.Lease, leastLease, DefaultLease))
	}
	return errors.Join(append(errs,
		validRetention("Config", c.Retention),
		validKeyless("Config", c.Keyless),
	)...)
}

func (c Config) keys() keys { return keys{c.Key, c.Scope, c.Keyless} }

func validRetention(in string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("idempotent: %s.Retention %s is negative: use 0 for %s", in, d, DefaultRetention)
	}
	return nil
}

func validKeyless(in string, k Keyless) error {
	if k != HandleKeyless && k != ParkKeyless {
		return fmt.Errorf("idempotent: %s.Keyless %d: use ParkKeyless or HandleKeyless", in, k)
	}
	return nil
}
