package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/sqlkit"
)

// Dialect is the SQL dialect of a database.
type Dialect = sqlkit.Dialect

// The supported dialects. Any database/sql driver for the database works.
const (
	PostgreSQL = sqlkit.PostgreSQL // 10 or later
	SQLite     = sqlkit.SQLite     // 3.24 or later
	MySQL      = sqlkit.MySQL      // MySQL 8.0 or MariaDB 10.6, or later
)

// DefaultPrefix is the default of Config.Prefix.
const DefaultPrefix = "reprise_outbox_"

// Config configures a Box. Dialect is required.
type Config struct {
	// Dialect is the SQL dialect of the database.
	Dialect Dialect

	// Prefix is the first part of the names of the tables. In PostgreSQL, a schema and a dot may precede it. Boxes with
	// different prefixes are independent. Default: "reprise_outbox_".
	Prefix string

	// App is the namespace of the names of periodic messages. Programs with different periodic messages need different
	// values. Default: "default".
	App string

	// BeforeInsert is called before a message is encoded, and may change it, but not its map of headers. For example, it can add
	// the trace context of ctx, because the relay publishes the message with another context: see oteltrace.BeforeInsert. If it
	// returns an error, no message of the call is inserted. To refuse the message permanently, the error must wrap
	// reprise.ErrInvalidMessage.
	BeforeInsert func(ctx context.Context, m *reprise.Message) error

	// Logger receives the events of the relay and of periodic messages. Default: no logging.
	Logger *slog.Logger

	// Clock replaces the clock of the database in tests. All users of the tables need the same clock. Default: the clock
	// of the database.
	Clock func() time.Time
}

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, DefaultPrefix)
	c.App = cmp.Or(c.App, "default")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Prefixes leave room for the names of tables and indexes, which PostgreSQL truncates to 63 bytes.
var prefix = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,39}\.)?[a-z_][a-z0-9_]{0,39}$`)

// Validate reports missing and invalid settings and their valid values.
func (c Config) Validate() error {
	var errs []error
	if err := c.Dialect.Validate(PostgreSQL, SQLite, MySQL); err != nil {
		errs = append(errs, fmt.Errorf("outbox: Config.%w", err))
	}
	switch at := cmp.Or(c.Prefix, DefaultPrefix); {
	case !prefix.MatchString(at):
		errs = append(errs, fmt.Errorf("outbox: Config.Prefix must be at most 40 lower-case letters, digits and underscores, and not begin with a digit: got %q (empty means %s)", at, DefaultPrefix))
	case c.Dialect == SQLite && strings.Contains(at, "."):
		errs = append(errs, fmt.Errorf("outbox: Config.Prefix must not have a schema with SQLite: got %q", at))
	}
	if len(c.App) > 60 || strings.Contains(c.App, "/") || !isText(c.App) {
		errs = append(errs, fmt.Errorf("outbox: Config.App must be at most 60 bytes of text without a slash: got %q", c.App))
	}
	return errors.Join(errs...)
}
