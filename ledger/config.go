package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/reprisemq/reprise/failed"
)

// Defaults of Config and BookConfig.
const (
	DefaultPrefix = "reprise_ledger_"
	DefaultEvery  = 15 * time.Second
	DefaultReport = 5 * time.Second
	DefaultKeep   = 10_000
)

// Config adjusts a Ledger. Dialect is required.
type Config struct {
	// Dialect is what the database speaks.
	Dialect failed.Dialect

	// Prefix is what the names of tables begin with: at most 40 small letters, digits and
	// underscores. Books and Ledgers of the same workers have the same. Default
	// "reprise_ledger_".
	Prefix string

	// Every is how often a sample is taken. It must be longer than the figures of the
	// broker are old and the reports of workers apart: RabbitMQ with default settings
	// needs 15 s, one with a longer collect_statistics_interval twice that and 5 s. Default 15 s.
	Every time.Duration

	// Keep is how many samples of an account are kept. One that is found again as it
	// was takes no place. A difference older than those has no beginning any more.
	// Default 10000, which is at least 41 hours.
	Keep int

	// Clock tells the time. Default time.Now.
	Clock func() time.Time

	// Logger receives "messages are missing" and "more messages than came in" with
	// account, messages, since, until (Error), "account is balanced again" with account
	// (Info), and "cannot be audited" with error (Warn). Default: none.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	c.Every = cmp.Or(c.Every, DefaultEvery)
	c.Keep = cmp.Or(c.Keep, DefaultKeep)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate reports what is missing or cannot work and what to write instead.
func (c Config) Validate() error {
	errs := []error{validateStore(c.Dialect, c.Prefix)}
	if c.Every < 0 {
		errs = append(errs, fmt.Errorf("ledger: Config.Every %s is negative: use 0 for %s", c.Every, DefaultEvery))
	}
	if c.Keep < 0 || c.Keep > 0 && c.Keep < 100 {
		errs = append(errs, fmt.Errorf("ledger: Config.Keep %d: use at least 100, or 0 for %d", c.Keep, DefaultKeep))
	}
	return errors.Join(errs...)
}

// BookConfig adjusts a Book. Dialect is required.
type BookConfig struct {
	// Dialect is what the database speaks.
	Dialect failed.Dialect

	// Prefix is as in Config.
	Prefix string

	// Process is what a report calls this process. Default: host and process id.
	Process string

	// Every is how often what was counted is written. Default 5 s.
	Every time.Duration

	// Clock tells the time. Default time.Now.
	Clock func() time.Time

	// Logger receives "ledger is not written" with error and next_try (Warn). Default: none.
	Logger *slog.Logger
}

func (c BookConfig) withDefaults() BookConfig {
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	c.Every = cmp.Or(c.Every, DefaultReport)
	c.Process = cmp.Or(c.Process, thisProcess())
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Validate reports what is missing or cannot work and what to write instead.
func (c BookConfig) Validate() error {
	errs := []error{validateStore(c.Dialect, c.Prefix)}
	if c.Every < 0 {
		errs = append(errs, fmt.Errorf("ledger: BookConfig.Every %s is negative: use 0 for %s", c.Every, DefaultReport))
	}
	return errors.Join(errs...)
}

var prefixes = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,39}$`)

func validateStore(d failed.Dialect, prefix string) error {
	if err := d.Validate(); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if prefix != "" && !prefixes.MatchString(prefix) {
		return fmt.Errorf("ledger: Prefix %q: use at most 40 small letters, digits and underscores, not a digit first, or leave it empty for %s", prefix, DefaultPrefix)
	}
	return nil
}
