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

// leastLease is the minimum lease. It leaves time to retry a failed extension.
const leastLease = time.Second

// Config configures Middleware. The zero value means the defaults.
type Config struct {
	// Key returns the key of a message. Messages with the same key count as one message. If Key returns "", the message
	// has no key. If the worker assigned the message id (reprise.Delivery.MessageIDAssigned), Key receives the message
	// without the id. A key may be any string. A key that is longer than 512 bytes, is not valid UTF-8, contains control
	// characters or begins with "sha256:" is stored as its SHA-256. Default: the message id.
	Key func(m *reprise.Delivery) string

	// Scope is the namespace of the keys. Workers with different scopes do not share keys. Set Scope if messages move
	// between queues, or if only one of several queues may handle a message. Default: the name of the work queue.
	Scope string

	// Keyless selects the treatment of a message without a key. Default: ParkKeyless, because the duplicates of such a
	// message cannot be detected.
	Keyless Keyless

	// Lease is the time for which a key stays claimed if the claim is not extended. If a crash interrupts a handler,
	// the message waits until the lease ends. Middleware extends the lease each time a third of it has passed, so a
	// handler may run longer than the lease. Minimum: 1 s. Default: 1 min.
	Lease time.Duration

	// Retention is the time for which the store remembers a completed key. It must exceed the maximum time between a
	// message and its duplicate. To estimate this time, add the longest delay of the worker's Backoff, the time for
	// which a publisher retries, and the longest downtime of the workers. Default: 7 days.
	Retention time.Duration

	// Logger receives the events listed at Middleware. Default: no logging.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Lease = cmp.Or(c.Lease, DefaultLease)
	c.Retention = cmp.Or(c.Retention, DefaultRetention)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate reports invalid settings and their valid values.
func (c Config) Validate() error {
	var errs []error
	if c.Lease != 0 && c.Lease < leastLease {
		errs = append(errs, fmt.Errorf("idempotent: Config.Lease must be at least %s: got %s (0 means %s)", leastLease, c.Lease, DefaultLease))
	}
	return errors.Join(append(errs,
		validRetention("Config", c.Retention),
		validKeyless("Config", c.Keyless),
	)...)
}

func (c Config) keys() keys { return keys{c.Key, c.Scope, c.Keyless} }

func validRetention(in string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("idempotent: %s.Retention must not be negative: got %s (0 means %s)", in, d, DefaultRetention)
	}
	return nil
}

func validKeyless(in string, k Keyless) error {
	if k != HandleKeyless && k != ParkKeyless {
		return fmt.Errorf("idempotent: %s.Keyless must be ParkKeyless or HandleKeyless: got %d", in, k)
	}
	return nil
}
