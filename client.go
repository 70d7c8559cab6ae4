package reprise

import (
	"context"
	"sync/atomic"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/announce"
	"github.com/reprisemq/reprise/internal/publish"
	"github.com/reprisemq/reprise/topology"
)

// Client holds the connections to one broker: one for publishing, one for
// consuming, so that a broker which throttles publishers does not keep
// consumers from acknowledging. Both reconnect for ever. All methods are safe
// for concurrent use.
type Client struct {
	cfg        Config
	publishing *amqpconn.Link
	consuming  *amqpconn.Link
	messages   *publish.Publisher // of Publish
	copies     *publish.Publisher // of workers: messages of users must not disturb them
	declared   *declarer          // what copies need, on the publishing connection
	scheduled  *scheduler
	reports    *reports
	agent      *announce.Agent // nil: workers are not announced
	workers    atomic.Int64    // that were made

	stop  context.CancelFunc
	tasks amqpconn.Tasks // every goroutine
}

// Dial connects to the broker at url and returns when both connections stand. A
// nil config means the defaults.
//
//	amqp://user:password@host:5672/vhost                    port 5672 and vhost / may be left out
//	amqps://user:password@host/vhost?cacertfile=/etc/ca.pem TLS: see Config.TLS
//	amqp://user:password@host1,host2:5673,[::1]/vhost       the nodes of a cluster
//
// Special characters of user, password and virtual host are percent-encoded.
// The parameters are RabbitMQ's: heartbeat (in seconds), connection_timeout (in
// milliseconds, of a whole attempt: default 30 s, with several hosts 10 s),
// channel_max, auth_mechanism; with amqps also cacertfile, certfile and keyfile,
// server_name_indication, and verify, which can only be verify_peer. Any other is an
// error. https://www.rabbitmq.com/docs/uri-query-parameters
//
// Of several hosts each attempt to connect takes the next one, in an order that
// is random for each Client, so that a fleet spreads over the nodes. The delays of
// Config.Reconnect come, and grow, when all were tried.
//
// A URL that cannot be understood is returned at once, as a *ConnectError; so is
// a refused user, a missing virtual host or a certificate that is not trusted, as
// soon as no other host lets us in either. (A host that cannot be reached does not
// count: users and virtual hosts are the cluster's.) A broker that cannot be
// reached is tried until ctx ends. ctx does not end the Client: Close does. Once
// connected, a Client that is refused goes on trying, for ever.
func Dial(ctx context.Context, url string, config *Config) (*Client, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	addresses, err := amqpconn.ParseURL(url)
	if err != nil {
		return nil, err
	}
	if config != nil && config.TLS != nil && !addresses.TLS() {
		return nil, &ConnectError{Addr: addresses.First(), Reason: "Config.TLS is given, but the URL asks for a connection without TLS: " +
			"write amqps:// (its port is 5671 where none is named), or leave Config.TLS out"}
	}
	c := &Client{cfg: config.withDefaults()}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop = stop
	fail := func(err error) (*Client, error) {
		_ = c.tasks.Close(context.Background(), stop)
		return nil, err
	}
	c.publishing = amqpconn.NewLink(c.cfg.linkConfig("publish"), addresses.Rotation(), &c.tasks)
	publishing, err := c.publishing.Connect(ctx)
	if err != nil {
		return fail(err)
	}
	c.consuming = amqpconn.NewLink(c.cfg.linkConfig("consume"), c.publishing.Beside(), &c.tasks)
	consuming, err := c.consuming.Connect(ctx)
	if err != nil {
		publishing.End(amqpconn.CloseTimeout)
		return fail(err)
	}

	publishers := publish.Config{Link: c.publishing, Tasks: &c.tasks, Timeout: c.cfg.ConfirmTimeout, Reconnect: c.cfg.Reconnect}
	c.messages = publish.New(running, publishers)
	c.copies = publish.New(running, publishers)
	c.declared = newDeclarer(c)
	c.scheduled = newScheduler(c)
	c.reports = newReports()
	if c.cfg.Announce {
		c.agent = announce.New(running, announce.Config{
			Client: c.cfg.Name, Program: c.cfg.Version,
			Link: c.publishing, Tasks: &c.tasks, Reconnect: c.cfg.Reconnect, Log: c.cfg.Logger,
		})
	}
	_ = c.tasks.Go(func() { c.publishing.Run(running, publishing) }) // the client is not closed yet
	_ = c.tasks.Go(func() { c.consuming.Run(running, consuming) })
	return c, nil
}

// Declare makes sure that everything in t exists, and returns a *DeclareError
// that explains what the broker refused. It waits for a connection until ctx
// ends, and then for the broker up to the ConfirmTimeout; ErrDisconnected if that
// gave no answer, or the connection was lost meanwhile. Declaring again is harmless.
//
// A publisher that may start before the worker declares what the worker does: the Topology
// of its Strategy's Route, and WorkerConfig.Topology. With the default Strategy that is
//
//	client.Declare(ctx, topology.Buckets{}.Topology("orders"))
func (c *Client) Declare(ctx context.Context, t topology.Topology) error {
	return c.declare(ctx, c.consuming, t)
}

// Close closes both connections and returns when every goroutine of the client
// has ended, or ctx has. Shut the workers down first: whatever they have not
// settled is delivered again. Closing again waits for the same end.
func (c *Client) Close(ctx context.Context) error { return c.tasks.Close(ctx, c.stop) }

// CheckURL reports what is wrong with the URL of a broker, as Dial does, without
// connecting. No part of the URL is in the error, since it could be part of a
// password.
func CheckURL(url string) error {
	_, err := amqpconn.ParseURL(url)
	return err
}

// linkConfig configures the link for one purpose, "publish" or "consume".
func (c *Config) linkConfig(purpose string) amqpconn.LinkConfig {
	link := amqpconn.LinkConfig{
		Name: c.Name + " " + purpose, Logger: c.Logger, Dial: c.Dial, TLS: c.TLS,
		Heartbeat: c.Heartbeat, Timeout: c.ConfirmTimeout, Reconnect: c.Reconnect,
	}
	if o := c.Observer; o != nil {
		link.Observe = func(change amqpconn.Change, err error) {
			o.Observe(Event{Kind: linkEvents[change], Connection: purpose, Err: err})
		}
	}
	return link
}

var linkEvents = map[amqpconn.Change]EventKind{
	amqpconn.Connected: EventConnected, amqpconn.Disconnected: EventDisconnected,
	amqpconn.Blocked: EventBlocked, amqpconn.Unblocked: EventUnblocked,
}
