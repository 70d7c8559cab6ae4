package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/console/internal/access"
	"github.com/reprisemq/reprise/console/internal/web"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/history"
	"github.com/reprisemq/reprise/internal/mgmtapi"
	"github.com/reprisemq/reprise/ledger"
	"github.com/reprisemq/reprise/topology"
)

// Config adjusts a Console. Archive is required.
type Config struct {
	// Archive has the messages. It stays the caller's.
	Archive *failed.Archive

	// Replayer sends replays. Default: none, and replays cannot be begun here.
	Replayer Replayer

	// Routing is the ReplayerConfig.Routing of the Replayer: pages and API show where it would
	// send messages. Default: nothing is known.
	Routing failed.Routing

	// Management is where the broker's live figures come from. Default: nowhere, and
	// pages show what the archive knows.
	Management *Management

	// Ledger says whether messages were lost. Default: none is kept.
	Ledger *ledger.Ledger

	// Fleet lists the workers of all processes, and pauses them. Default: none are listed.
	Fleet Fleet

	// Rescheduler acts on messages that wait for a retry. Default: none, and they are listed.
	Rescheduler Rescheduler

	// History is what queues did, and when. Default: none is recorded.
	History *history.History

	// Topology is what is drawn as a graph, beside what Management knows.
	Topology []topology.Topology

	// Workers are those of this program, shown with their states. Default: none.
	Workers []Worker

	// Tokens let people and programs in. Default: none, and only this machine gets
	// in, as an administrator.
	Tokens []Token

	// Secure says that browsers come by HTTPS although this program does not speak
	// it, but a proxy before it: the session's cookie then never travels without.
	// Default: as each request came.
	Secure bool

	// Prefix is the path prefix below which a proxy publishes the console, such as /reprise. The
	// proxy keeps the prefix: all paths of the console, those of the API included, begin with
	// it. Letters, digits and - . _ ~ are allowed between slashes. Default: none.
	Prefix string

	// TraceURL is the URL of a trace in another system, such as https://traces.example.com/trace/{trace_id}. The
	// page of a message that has the header traceparent of W3C Trace Context links to it, with the
	// ids of the header in place of {trace_id} and {span_id}. Default: no links.
	TraceURL string

	// Broker returns the client with which messages are published and queues are purged, and nil while there is no connection.
	// Default: neither is possible.
	Broker func() *reprise.Client

	// Clock tells the time. Default time.Now.
	Clock func() time.Time

	// Logger receives logins refused (Warn), logins (Info), and what went wrong on our
	// side (Error). Default: none.
	Logger *slog.Logger
}

// Replayer sends the replays that were begun in the archive. *failed.Replayer is
// one.
type Replayer interface {
	// Wake makes it look for a replay that was begun just now, rather than in a
	// moment. It does not wait.
	Wake()
}

// Fleet lists workers, and sends commands to them. *fleet.List is one.
type Fleet = web.Fleet

// Rescheduler acts on messages that wait for a retry. *failed.Rescheduler is one.
type Rescheduler = web.Rescheduler

// Management is the management HTTP API of a broker: RabbitMQ's, or the embedded
// broker's.
type Management struct {
	URL      string // such as http://localhost:15672
	User     string
	Password string
	VHost    string       // default "/"
	Client   *http.Client // default: one with a timeout
}

func (m Management) api() mgmtapi.API {
	return mgmtapi.API{URL: m.URL, User: m.User, Password: m.Password, Client: m.Client}
}

// Bindings returns the exchanges and bindings of the virtual host, for failed.Routing.
func (m Management) Bindings(ctx context.Context) (topology.Topology, error) {
	return m.api().Topology(ctx, cmp.Or(m.VHost, "/"))
}

// Worker is a worker of this program, as the console shows it.
type Worker struct {
	Queue   string        // the work queue
	State   func() error  // nil if it consumes, else why not: reprise.Worker.Consuming
	Breaker func() string // state of its breaker, in a word; nil: it has none

	// Config is what it was made with: the drawing of the topology then says how often
	// its messages are retried and how long they wait, as reprise topology graph does.
	// Default: not known, and the drawing says what is to be seen of the queues.
	Config *reprise.WorkerConfig
}

// prefixForm is the form of Config.Prefix. Its characters need no escape in addresses, and are no
// wildcards in patterns of routes. A segment begins with a letter or a digit, so that it is not . or ..
var prefixForm = regexp.MustCompile(`^(/[A-Za-z0-9][A-Za-z0-9._~-]*)+/?$`)

// Validate reports settings that cannot work and what to write instead.
func (c *Config) Validate() error {
	var errs []error
	if c.Archive == nil {
		errs = append(errs, errors.New("console: Config.Archive is missing: use what failed.Open returns"))
	}
	if m := c.Management; m != nil {
		if u, err := url.Parse(m.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			errs = append(errs, fmt.Errorf("console: Config.Management.URL %q: use http://host:15672 or https://…", m.URL))
		}
	}
	for i, w := range c.Workers {
		if w.Queue == "" || w.State == nil {
			errs = append(errs, fmt.Errorf("console: Config.Workers[%d] needs a Queue and a State: use the worker's method Consuming", i))
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
	errs = append(errs, access.ValidateTokens(accessTokens(c.Tokens)))
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Prefix = strings.TrimSuffix(c.Prefix, "/")
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}
