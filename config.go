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
)

// Defaults of Config.
const (
	DefaultHeartbeat      = amqpconn.DefaultHeartbeat
	DefaultConfirmTimeout = 30 * time.Second
	DefaultName           = "reprise"

	DefaultReconnectInitial = 100 * time.Millisecond
	DefaultReconnectMax     = 30 * time.Second
)

// maxConfigName leaves room in the 255 bytes of a consumer tag.
const maxConfigName = 200

// minReconnect is what the delays of Config.Reconnect have to reach.
const minReconnect = time.Millisecond

// Config adjusts a Client. The zero value, and a nil *Config, mean the
// defaults. What is set here wins over a parameter of the URL.
type Config struct {
	// Logger receives the events listed in the package comment. Default: none.
	Logger *slog.Logger

	// Observer is told what happens, for metrics: see package prommetrics.
	// Default: none.
	Observer Observer

	// BeforePublish is called with each message of Publish, PublishBatch, PublishAt and
	// PublishIn before it is encoded. It may change the message, to add headers such as a
	// trace context, or refuse it: its error is returned, matches ErrInvalidMessage, and stops
	// no other message of a batch. Copies of a worker do not pass it. It must be safe for
	// concurrent use. Default: none.
	BeforePublish func(ctx context.Context, m *Message) error

	// Dial opens the network connection to an address of the URL (addr is
	// host:port). Where the URL says amqps, TLS is put on top of that: Dial does not
	// do it. It should heed ctx, which ends with the time that an attempt may take:
	// see Dial, the function. Default: net.Dialer. Tests put an in-memory broker
	// here.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// TLS is used in place of the URL's own parameters for TLS. The URL has to say
	// amqps: beside amqp it is an error. Where it has no ServerName, the certificate has to be for the host
	// that the URL names: of several, each for its own. To log in with a client
	// certificate, put it here and auth_mechanism=external into the URL. Default:
	// the system's certificate authorities, or what the parameters of the URL name.
	TLS *tls.Config

	// Heartbeat is the interval at which a dead connection is noticed; a
	// connection is given up after at most twice as long. At least 1 s. Default:
	// what the URL's parameter heartbeat says, or 10 s.
	Heartbeat time.Duration

	// ConfirmTimeout is how long a published message, a declaration, or a worker that
	// begins to consume may stay without an answer from the broker. Time without a connection counts, and so
	// does time during which the broker has blocked publishers (out of memory or
	// disk). A worker's copy that was sent may stay longer: it is logged as late,
	// and not sent again. A worker without an answer tries again, over another
	// connection if the broker does not even open a channel; it waits for twice the
	// Heartbeat at least. Default 30 s.
	ConfirmTimeout time.Duration

	// Name is shown in the broker's list of connections, followed by
	// " publish" or " consume", and begins the tags of consumers. At most 200
	// bytes. Default "reprise".
	Name string

	// Announce makes the workers of this client visible to operators, who can pause them: with
	// package fleet, the console, `reprise workers` and `reprise pause`. The client declares the
	// exchanges topology.WorkersExchange, topology.ControlExchange and topology.RetriesExchange, and beside each work queue
	// a queue that keeps its pause: topology.PauseQueue. Retries of a second or more are reported. What the broker's user may not declare
	// is left out, and logged once. A worker with AsDelivered is not announced. Default false: a
	// library should not declare on a shared broker what nobody has asked for.
	Announce bool

	// Version is the version of the program, for operators: see Announce. Default: what the Go
	// toolchain has recorded of the main module.
	Version string

	// Reconnect is the delay between attempts to connect, where the URL has
	// several hosts between rounds of attempts, and between attempts to consume
	// or to publish a copy again after an error. It begins anew when a connection
	// has lasted for 30 s. The first delays may be 0, later ones must reach 1 ms.
	// Default: exponential from 100 ms, doubling, up to 30 s,
	// the second half of each delay random.
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
		d.Observer = guarded{d.Observer, d.Logger}
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

// Validate reports settings that cannot work and what to write instead.
func (c *Config) Validate() error {
	if c == nil {
		return nil
	}
	var errs []error
	if c.Heartbeat != 0 && c.Heartbeat < time.Second {
		errs = append(errs, fmt.Errorf("reprise: Config.Heartbeat %s: use at least 1s, or 0 for %s", c.Heartbeat, DefaultHeartbeat))
	}
	if c.ConfirmTimeout < 0 {
		errs = append(errs, fmt.Errorf("reprise: Config.ConfirmTimeout %s is negative: use 0 for %s", c.ConfirmTimeout, DefaultConfirmTimeout))
	}
	if len(c.Name) > maxConfigName {
		errs = append(errs, fmt.Errorf("reprise: Config.Name has %d bytes: use at most %d", len(c.Name), maxConfigName))
	}
	switch err := backoff.Validate(c.Reconnect); {
	case err != nil:
		errs = append(errs, err)
	case c.Reconnect != nil:
		const later = 1000 // the first delays may be 0, to try once at once
		if _, longest := backoff.Range(c.Reconnect, later); longest < minReconnect {
			errs = append(errs, fmt.Errorf("reprise: Config.Reconnect: its delays stay at %s, which would keep this process and the broker busy: "+
				"have them reach at least %s, such as backoff.Fixed(time.Second), or leave it nil for the default", longest, minReconnect))
		}
	}
	return errors.Join(errs...)
}
