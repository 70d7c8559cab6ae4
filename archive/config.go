package archive

import (
	"cmp"
	"context"
	"crypto/x509"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/console"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/notification"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/outbox"
	"github.com/reprisemq/reprise/topology"
)

// Config configures an Archive. DB and Dialect are required.
type Config struct {
	// DB is the database. The Archive creates its tables, whose names begin with reprise_, and does not close DB. Any
	// number of processes may share the database. In SQLite, the journal mode of the file becomes WAL. Required.
	DB *sql.DB

	// Dialect is the SQL dialect of DB. Required.
	Dialect Dialect

	// Name is the name of the database in logs, errors and notifications. Default: the path of an SQLite file, or the
	// dialect.
	Name string

	// Workers are the workers whose failed messages the archive stores. Only the fields Queue, Strategy and Topology, and
	// for the graph of the topology Policy, have a meaning. From them, the archive derives the failed queues, the work
	// queue of each message, the route of each replay and the accounts of the ledger. Default: none; the archive then
	// relies on the headers of the messages and on Management.
	Workers []reprise.WorkerConfig

	// Queues are failed queues in addition to the failed queues of Workers. Default: none. Without Workers and Queues,
	// the archive empties all queues whose names end with ".failed", which requires Management.
	Queues []string

	// Discover also finds the dead-letter and error queues of known frameworks through Management, which is then required, and
	// empties them. It takes a queue without consumers if its first message records the failure of a framework, and stops for
	// good when another program uses the queue. It logs the evidence or the reason to leave a queue, and the console lists
	// the queues that may have dead letters. Default: false.
	Discover bool

	// Keep is the time for which the archive keeps a message after its arrival, in any state except replaying. Default: 0,
	// forever.
	Keep time.Duration

	// KeepByQueue overrides Keep for work queues.
	KeepByQueue map[string]time.Duration

	// Redact selects secrets in messages. The search does not find them, and only users with the role admin see them. The
	// archive stores them, because a replay needs the complete message.
	Redact []Field

	// Columns selects values that lists of messages show, for example an order number.
	Columns []Field

	// Groups names groups of failures.
	Groups []GroupRule

	// Management is the management API of the broker. Default: none; the console then shows no figures of the broker,
	// there is no ledger, and replays know only the routes of Workers.
	Management *Management

	// Sample is the interval of the ledger's samples. It must be longer than the age of the broker's figures: the default,
	// 15 s, is right for RabbitMQ with default settings; use 3 s for the embedded broker, whose figures are current.
	Sample time.Duration

	// Console configures the pages and the API of Handler.
	Console Console

	// Outbox returns the box whose messages the console shows, or nil while it is not open. Default: none.
	Outbox func() *outbox.Box

	// ConsoleElsewhere turns off the Handler, the replays and the ledger. Set it in all but one of the processes that
	// share a database.
	ConsoleElsewhere bool

	// Notify configures notifications. Without webhooks, there are none.
	Notify Notify

	// Later makes Open return before the database is open. Run then opens it, and tries again while it is unreachable, so
	// that a program starts without its database. Until then, the Handler answers with status 503, and Healthy returns
	// ErrNotOpen. Default: false; Open returns an error if it cannot open the database.
	Later bool

	// Logger receives all events of the archive. Default: no logging.
	Logger *slog.Logger
}

// Dialect is the SQL dialect of a database.
type Dialect string

// The supported dialects. Any database/sql driver that supports numbered arguments works.
const (
	SQLite     Dialect = "SQLite"     // 3.43 or later, with FTS5
	PostgreSQL Dialect = "PostgreSQL" // 11 or later
)

func (d Dialect) kit() store.Dialect {
	if d == PostgreSQL {
		return store.PostgreSQL
	}
	return store.SQLite
}

// Field selects a value in messages. Exactly one of its fields is set.
type Field struct {
	// Header is the name of a header at the top level or in a nested table. Case is ignored.
	Header string

	// Path is the location in a JSON body: names separated by dots, with "*" for any name or index, as in "card.number" or
	// "items.*.token".
	Path string
}

// GroupRule names a group of failures.
type GroupRule struct {
	Queue string         // the work queue; "": all
	Error *regexp.Regexp // matches any part of the last error
	Name  string         // the text of the group, in which $1 is the first submatch of Error
}

// Management is the management HTTP API of RabbitMQ or of the embedded broker.
type Management struct {
	URL      string // for example http://localhost:15672
	User     string
	Password string
	VHost    string       // default: /
	Client   *http.Client // default: a client with a timeout
}

// Queue returns the properties and the effective arguments of a queue, for [reprise.Config.Inspect].
func (m *Management) Queue(ctx context.Context, name string) (topology.Queue, error) {
	return mgmtapi.API(*m).Declaration(ctx, name)
}

// Console configures the pages and the API of [Archive.Handler].
type Console struct {
	// URL is the address of the console for browsers, which the links in notifications use. Its path must be Prefix.
	URL string

	// Prefix is the path under which a proxy publishes the console, such as /reprise. All paths of the console start with
	// it, so the proxy must not remove it. Default: none.
	Prefix string

	// Tokens grant access to users and programs. Default: none; only users of this machine have access, with the role
	// admin. Never serve a console without tokens on an address that other machines can reach.
	Tokens []Token

	// Secure sets the attribute Secure of session cookies also if a proxy terminates HTTPS.
	Secure bool

	// TraceURL is the URL of a trace in another system, such as https://traces.example.com/trace/{trace_id}. Messages with a
	// header traceparent link to it. Default: no links.
	TraceURL string
}

// Token grants a user or a program access to the console.
type Token struct {
	Name string // of the owner, in the audit log: 1 to 64 letters, digits and . _ - @
	Role string // view, operate (also replay, edit, discard, undo) or admin (also see secrets, import, purge, erase)
	Hash string // from NewToken; the console does not store the token
}

// NewToken returns a random token for its owner, and the hash for Token.Hash.
func NewToken() (token, hash string) { return console.NewToken() }

// Notify configures notifications of new failures, stopped replays, missing messages and similar events.
type Notify struct {
	Webhooks []Webhook
	Gather   time.Duration // time for which a message collects events before it is sent. Default: 30 s
	Cooldown time.Duration // minimum time before an equal event is sent again. Default: 1 h
	Growth   int           // messages that a group or a failed queue must gain in 5 minutes. Default: 100

	Sent func(result string) // called after each attempt with sent, retried or given_up. Default: none
}

// Webhook is a receiver of notifications.
type Webhook struct {
	URL         string         // http or https; the log contains only its host
	Format      string         // json (default), slack or teams
	Secret      string         // whsec_…, which signs the messages. Default: messages are not signed
	Events      []string       // kinds of events. Default: all
	Authorities *x509.CertPool // of the receiver's certificate. Default: the authorities of the system
}

// Worker is a worker of this program, for [Archive.Connect].
type Worker struct {
	*reprise.Worker
	Config reprise.WorkerConfig
}

// Validate reports missing and invalid fields, and suggests valid values. It accesses neither the database nor the
// network.
func (c Config) Validate() error {
	var errs []error
	if c.DB == nil {
		errs = append(errs, errors.New("archive: Config.DB must not be nil (use sql.Open)"))
	}
	if c.Dialect != SQLite && c.Dialect != PostgreSQL {
		errs = append(errs, fmt.Errorf("archive: Config.Dialect must be SQLite or PostgreSQL: got %q", c.Dialect))
	}
	queues := c.queues()
	if len(queues) == 0 && c.Management == nil {
		errs = append(errs, errors.New("archive: Config must have Workers, Queues or Management, to find the failed queues"))
	}
	if c.Discover && c.Management == nil {
		errs = append(errs, errors.New("archive: Config.Discover requires Management"))
	}
	if slices.Contains(queues, "") {
		errs = append(errs, errors.New("archive: Config.Queues must not contain an empty name"))
	}
	if c.Keep < 0 {
		errs = append(errs, fmt.Errorf("archive: Config.Keep must not be negative: got %s (0 keeps messages indefinitely)", c.Keep))
	}
	if c.Sample < 0 {
		errs = append(errs, fmt.Errorf("archive: Config.Sample must not be negative: got %s (0 means %s)", c.Sample, ledger.DefaultEvery))
	}
	if err := c.store().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("archive: %w", err))
	}
	tokens, err := c.Console.tokens()
	shown := c.console(tokens)
	errs = append(errs, err, shown.Validate(), c.Console.checkURL())
	for _, w := range c.Notify.webhooks() {
		if err := w.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("webhook %s: %w", w.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// checkURL returns an error if the path of the URL differs from the prefix.
func (c Console) checkURL() error {
	prefix := strings.TrimSuffix(c.Prefix, "/")
	if u, err := url.Parse(c.URL); c.URL != "" && (err != nil || strings.TrimSuffix(u.Path, "/") != prefix) {
		return fmt.Errorf("the path of the console's url must be its prefix %q: got %s", prefix, c.URL)
	}
	return nil
}

func (c Console) tokens() ([]console.Token, error) { return parseTokens(c.Tokens) }

func parseTokens(tokens []Token) (all []console.Token, err error) {
	var errs []error
	for _, t := range tokens {
		parsed := console.Token{Name: t.Name, Hash: t.Hash}
		if err := parsed.Role.UnmarshalText([]byte(t.Role)); err != nil {
			errs = append(errs, fmt.Errorf("archive: token of %q: %w", t.Name, err))
		}
		all = append(all, parsed)
	}
	return all, errors.Join(errs...)
}

func (n Notify) webhooks() (all []notification.Webhook) {
	for _, w := range n.Webhooks {
		to := notification.Webhook{URL: w.URL, Format: notification.Format(cmp.Or(w.Format, "json")), Secret: w.Secret, Authorities: w.Authorities}
		for _, kind := range w.Events {
			to.Events = append(to.Events, notification.Kind(kind))
		}
		all = append(all, to)
	}
	return all
}
