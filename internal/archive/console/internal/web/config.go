package web

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/console/internal/access"
	"github.com/reprisemq/reprise/internal/archive/console/internal/flow"
	"github.com/reprisemq/reprise/internal/archive/history"
	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/outbox"
	"github.com/reprisemq/reprise/topology"
)

// Config configures a console. Archive is required.
type Config struct {
	// Archive stores the failed messages. The console does not close the archive. Required.
	Archive *store.Archive

	// Replayer sends replays. Default: none; users cannot start replays.
	Replayer Replayer

	// Routing is the replay.Config.Routing of the Replayer. The console uses it to show the destinations of messages.
	// Default: none; the console does not show destinations.
	Routing replay.Routing

	// Management is the source of the broker's live figures. Default: none; pages do not show these figures.
	Management *mgmtapi.API

	// Ledger detects lost messages. Default: none; the page Ledger is empty.
	Ledger *ledger.Ledger

	// Fleet lists the workers of all processes, and pauses them. Default: none; the page Workers is empty.
	Fleet Fleet

	// Rescheduler acts on messages that wait for a retry. Default: none; the console only lists these messages.
	Rescheduler Rescheduler

	// History contains the recorded activity of queues. Default: none; the page History is empty.
	History *history.History

	// Topology is drawn as a graph, together with the topology from Management. Default: empty.
	Topology []topology.Topology

	// Workers returns the workers of this program, which the overview shows with their states. Default: none.
	Workers func() []flow.Worker

	// Tokens grant access to users and programs. Default: none; only local users have access, with the role Admin.
	Tokens []access.Token

	// Secure sets the attribute Secure of all session cookies, so that browsers send them only over HTTPS. Set Secure
	// if a proxy terminates HTTPS and forwards plain HTTP. Default: false; a session cookie has the attribute only if
	// the console itself received the login over HTTPS.
	Secure bool

	// Prefix is the path prefix under which a proxy publishes the console, such as /reprise. The proxy must not remove
	// the prefix, because all paths of the console, including the API, start with it. Each segment starts with a letter
	// or a digit, followed by letters, digits and the characters - . _ ~. Default: none.
	Prefix string

	// TraceURL is a template for the URL of a trace in another system, such as
	// https://traces.example.com/trace/{trace_id}. If a message has a traceparent header (W3C Trace Context), the page
	// of the message links to this URL. The IDs in the header replace {trace_id}, which is required, and {span_id}.
	// Default: no links.
	TraceURL string

	// Broker returns the client for publishing messages and purging queues, or nil while there is no connection.
	// Default: none; users can neither publish nor purge.
	Broker func() *reprise.Client

	// Outbox returns the box with the messages that leave later, or nil while it is not open. Default: none; the console
	// neither lists nor schedules such messages.
	Outbox func() *outbox.Box

	// Doubtful returns the queues that may be dead-letter queues and are not archived. Default: none.
	Doubtful func() []DoubtfulQueue

	// Clock returns the current time. Default: time.Now.
	Clock func() time.Time

	// Logger logs logins (Info), refused logins, incomplete purges and an unavailable archive (Warn), and internal
	// errors (Error). Default: none.
	Logger *slog.Logger
}

// DoubtfulQueue is a queue that may be a dead-letter queue and is not archived.
type DoubtfulQueue struct {
	Queue, Why string
	Stopped    bool // the console archived it before
}

// Replayer carries out the replays that users start. *replay.Replayer implements it.
type Replayer interface {
	// Wake makes the Replayer look for new replays immediately instead of after its interval. It does not block.
	Wake()
}

// prefixForm is the form of Config.Prefix. Its characters do not require escaping in URLs and have no special meaning
// in the patterns of [http.ServeMux]. A segment starts with a letter or a digit, so that it cannot be "." or "..".
var prefixForm = regexp.MustCompile(`^(/[A-Za-z0-9][A-Za-z0-9._~-]*)+/?$`)

// Validate reports invalid settings and suggests valid values.
func (c *Config) Validate() error {
	var errs []error
	if m := c.Management; m != nil {
		if u, err := url.Parse(m.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			errs = append(errs, fmt.Errorf("console: Config.Management.URL must be a URL such as http://host:15672: got %q", m.URL))
		}
	}
	if c.Prefix != "" && !prefixForm.MatchString(c.Prefix) {
		errs = append(errs, fmt.Errorf("console: Config.Prefix must be a path such as /reprise: got %q", c.Prefix))
	}
	if c.TraceURL != "" {
		u, err := url.Parse(strings.NewReplacer("{trace_id}", "0", "{span_id}", "0").Replace(c.TraceURL))
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || !strings.Contains(c.TraceURL, "{trace_id}") {
			errs = append(errs, fmt.Errorf("console: Config.TraceURL must be a URL such as https://host/trace/{trace_id}: got %q", c.TraceURL))
		}
	}
	errs = append(errs, access.ValidateTokens(c.Tokens))
	return errors.Join(errs...)
}

// WithDefaults returns the configuration with defaults for unset fields.
func (c Config) WithDefaults() Config {
	c.Prefix = strings.TrimSuffix(c.Prefix, "/")
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Workers == nil {
		c.Workers = func() []flow.Worker { return nil }
	}
	if c.Doubtful == nil {
		c.Doubtful = func() []DoubtfulQueue { return nil }
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}
