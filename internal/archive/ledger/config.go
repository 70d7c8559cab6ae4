package ledger

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/reprisemq/reprise/internal/archive/store"
)

// Default values of the fields of Config and BookConfig.
const (
	DefaultPrefix = "reprise_ledger_"
	DefaultEvery  = 15 * time.Second
	DefaultReport = 5 * time.Second
	DefaultKeep   = 10_000
)

// Config configures a Ledger. Dialect is required.
type Config struct {
	// Dialect is the SQL dialect of the database. Required.
	Dialect store.Dialect

	// Prefix is the prefix of the table names. Books and Ledgers of the same workers must use the same Prefix. Default:
	// "reprise_ledger_".
	Prefix string

	// Every is the interval between samples. It must be longer than both the age of the broker's figures and the interval
	// of the workers' reports. RabbitMQ with default settings requires at least 15 s. RabbitMQ with a longer
	// collect_statistics_interval requires twice that interval plus 5 s. Default: 15 s.
	Every time.Duration

	// Keep is the number of samples that the ledger stores for each account. A sample that equals the previous sample
	// does not count. If a discrepancy is older than all stored samples, its start is unknown. Minimum: 100. Default:
	// 10000, which covers at least 41 hours if Every is 15 s.
	Keep int

	// Clock returns the current time. Default: time.Now.
	Clock func() time.Time

	// Logger receives "messages are missing" and "more messages than were published" with account, messages, since,
	// until (Error), "account is balanced again" with account (Info), and "cannot audit" with error (Warn). Default:
	// none.
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

// BookConfig configures a Book. Dialect is required.
type BookConfig struct {
	// Dialect is the SQL dialect of the database. Required.
	Dialect store.Dialect

	// Prefix is the prefix of the table names: see Config.Prefix.
	Prefix string

	// Process is the name of this process in reports. Default: host name and process ID.
	Process string

	// Every is the interval at which the counts are written. Default: 5 s.
	Every time.Duration

	// Clock returns the current time. Default: time.Now.
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
