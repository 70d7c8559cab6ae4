package reprise

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/loglimit"
	"github.com/reprisemq/reprise/topology"
)

// Default values of the fields of Config.
const (
	DefaultHeartbeat      = amqpconn.DefaultHeartbeat
	DefaultConfirmTimeout = 30 * time.Second
	DefaultName           = "reprise"

	DefaultReconnectInitial = 100 * time.Millisecond
	DefaultReconnectMax     = 30 * time.Second
)

// maxConfigName limits Config.Name, which is part of consumer tags. A consumer tag has at most 255 bytes.
const maxConfigName = 200

// minReconnect is the delay that Config.Reconnect must eventually reach.
const minReconnect = time.Millisecond

// Config configures a Client. The zero value and a nil *Config select the defaults. A field takes precedence over the
// corresponding parameter of the URL.
type Config struct {
	// Logger receives the events listed in docs/observability.md. Default: none.
	Logger *slog.Logger

	// Observer receives the events of the client and its workers, for example for metrics: see package prommetrics.
	// Default: none.
	Observer Observer

	// BeforePublish is called before Publish, PublishBatch, PublishAt or PublishIn encodes a message. It may change the
	// message, for example to add headers such as a trace context. If it returns an error, the message is not sent, and the
	// publishing method returns an error that wraps this error. To refuse the message permanently, the error must wrap
	// ErrInvalidMessage. The other messages of a batch are not affected. BeforePublish is not called for the copies that a
	// worker publishes. It must be safe for concurrent use. Default: none.
	BeforePublish func(ctx context.Context, m *Message) error

	// Dial opens the network connection to an address from the URL (addr is host:port). If the scheme of the URL is amqps,
	// the client adds TLS to this connection, so Dial must not do so. Dial should respect ctx, which is canceled after the
	// connection timeout (see the function Dial). Default: net.Dialer. Tests can set Dial to connect to an in-memory broker.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// TLS replaces the TLS parameters of the URL, whose scheme must be amqps. Without a ServerName, the certificate of
	// each host must be valid for the host name in the URL. To log in with a client certificate, set the certificate
	// here and auth_mechanism=external in the URL. Default: the parameters of the URL, or the system's certificate
	// authorities.
	TLS *tls.Config

	// Credentials returns the user and the password, for each attempt to connect, instead of those in the URL. If it returns an
	// error, the client tries again later. A connection that is open continues after a rotation, unless the broker closes it.
	// Credentials must respect ctx, which is canceled after the connection timeout. It is not called with
	// auth_mechanism=external. Default: the user of the URL, and its password or passwordfile.
	Credentials func(ctx context.Context) (user, password string, err error)

	// CredentialsRefresh is the interval at which the client calls Credentials, or reads passwordfile, while a connection is open. If
	// only the password has changed, the client passes it to the broker (connection.update-secret). Use it for tokens that expire,
	// with less than their lifetime. Default: one minute with passwordfile, never with Credentials.
	CredentialsRefresh time.Duration

	// Inspect returns the properties and the effective arguments of a queue, including those that policies set, for example from
	// the management API: see Worker.Risks. Default, and after an error: the answers of the broker to declarations of the queue,
	// which do not include policies.
	Inspect func(ctx context.Context, queue string) (topology.Queue, error)

	// Heartbeat is the interval of heartbeats that detect a dead connection. The client closes a silent connection
	// after at most two intervals. Minimum: 1 s. Default: the parameter heartbeat of the URL, or 10 s.
	Heartbeat time.Duration

	// ConfirmTimeout is the maximum time that the broker may take to confirm a message, or to answer a declaration or a
	// worker's subscription. For a message, it includes the time without a connection and the time during which the broker
	// blocks publishers (memory or disk alarm). It does not apply to a copy that a worker has sent: if the confirm is late,
	// the worker logs this and does not send the copy again. A worker that cannot start to consume within the
	// ConfirmTimeout, or twice the Heartbeat if that is longer, tries again. If the broker does not even open a channel, the
	// client replaces the connection. Default: 30 s.
	ConfirmTimeout time.Duration

	// Name identifies the client in the broker's list of connections, followed by " publish" or " consume". It is also the
	// prefix of consumer tags. At most 200 bytes. Default: "reprise".
	Name string

	// Announce makes the workers of this client visible to operators, in the console and `reprise workers`.
	// Operators can pause them in the console or with `reprise pause`. Workers also report retries with a delay of
	// a second or more. The client declares the exchanges reprise.workers, reprise.control and reprise.retries, and, for each
	// work queue, a queue that stores its pause, reprise.paused.{queue}: see docs/worker-protocol.md. If the broker
	// user may not declare an object, the client omits the object and logs this once. A worker with AsDelivered is not
	// announced. Default: false, because a library should not declare unrequested objects on a shared broker.
	Announce bool

	// Version is the version of the program, as displayed to operators: see Announce. Default: the main module's version, as
	// recorded by the Go toolchain.
	Version string

	// Reconnect is the delay between attempts to connect, or between rounds of attempts if the URL has several hosts.
	// After an error, it is also the delay before a worker consumes again or publishes a copy again. After a connection
	// has lasted 30 s, the delays start again from the first. When one of the two connections has opened, the other one tries again
	// at once, if its last attempt has failed. The first delays may be 0, but later delays must reach 1 ms.
	// Default: exponential from 100 ms, doubling up to 30 s; half of each delay is random.
	Reconnect backoff.Backoff
}

func (c *Config) withDefaults() Config {
	var d Config
	if c != nil {
		d = *c
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Observer != nil {
		d.Observer = &guardedObserver{observer: d.Observer, log: d.Logger, limit: loglimit.Limit{Burst: 10}}
	}
	if d.Dial == nil {
		d.Dial = (&net.Dialer{}).DialContext
	}
	if d.ConfirmTimeout == 0 {
		d.ConfirmTimeout = DefaultConfirmTimeout
	}
	if d.Name == "" {
		d.Name = DefaultName
	}
	if d.Reconnect == nil {
		d.Reconnect = backoff.Equal(backoff.Exponential{Initial: DefaultReconnectInitial, Max: DefaultReconnectMax})
	}
	return d
}

// Validate reports invalid settings and suggests valid values.
func (c *Config) Validate() error {
	if c == nil {
		return nil
	}
	var errs []error
	if c.Heartbeat != 0 && c.Heartbeat < time.Second {
		errs = append(errs, fmt.Errorf("reprise: Config.Heartbeat must be at least 1s: got %s (0 means %s)", c.Heartbeat, DefaultHeartbeat))
	}
	if c.ConfirmTimeout < 0 {
		errs = append(errs, fmt.Errorf("reprise: Config.ConfirmTimeout must not be negative: got %s (0 means %s)", c.ConfirmTimeout, DefaultConfirmTimeout))
	}
	if c.CredentialsRefresh < 0 {
		errs = append(errs, fmt.Errorf("reprise: Config.CredentialsRefresh must not be negative: got %s (0 means the default)", c.CredentialsRefresh))
	}
	if len(c.Name) > maxConfigName {
		errs = append(errs, fmt.Errorf("reprise: Config.Name must have at most %d bytes: got %d", maxConfigName, len(c.Name)))
	}
	switch err := backoff.Validate(c.Reconnect); {
	case err != nil:
		errs = append(errs, err)
	case c.Reconnect != nil:
		const later = 1000 // the first delays may be 0, for immediate attempts
		if _, longest := backoff.Range(c.Reconnect, later); longest < minReconnect {
			errs = append(errs, fmt.Errorf("reprise: Config.Reconnect must reach a delay of at least %s: got %s (shorter delays keep the process and the broker busy; nil means the default)", minReconnect, longest))
		}
	}
	return errors.Join(errs...)
}
