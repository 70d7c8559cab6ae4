package reprise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/reprisemq/reprise/internal/amqpconn"
	"github.com/reprisemq/reprise/internal/announce"
	"github.com/reprisemq/reprise/internal/inner"
	"github.com/reprisemq/reprise/internal/publish"
	"github.com/reprisemq/reprise/topology"
)

// Client manages two connections to one broker, one for publishing and one for consuming. Consumers can therefore
// acknowledge messages even while the broker throttles publishers. Both connections reconnect indefinitely. A Client is
// safe for concurrent use.
type Client struct {
	cfg        Config
	publishing *amqpconn.Link
	consuming  *amqpconn.Link
	messages   *publish.Publisher // for Publish and related methods
	copies     *publish.Publisher // for copies, reports and commands, isolated from users' messages
	declared   *declarer          // declares the queues for copies, over the publishing connection
	births     births
	scheduled  *scheduler
	reports    *reports
	agent      *announce.Agent // nil if workers are not announced
	workers    atomic.Int64    // number of workers created so far

	stop  context.CancelFunc
	tasks amqpconn.Tasks // the goroutines of the client
}

// Dial connects to the broker at url and returns when both connections are open. A nil config selects the defaults.
//
//	amqp://user:password@host:5672/vhost                    port 5672 and vhost / may be left out
//	amqps://user:password@host/vhost?cacertfile=/etc/ca.pem TLS: see Config.TLS
//	amqp://user:password@host1,host2:5673,[::1]/vhost       the nodes of a cluster
//
// Percent-encode special characters in the user, the password and the virtual host. Dial accepts these RabbitMQ URI
// parameters: heartbeat (in seconds), connection_timeout (in milliseconds, for a whole attempt; default 30 s, with
// several hosts 10 s), channel_max and auth_mechanism, and passwordfile, the path of a file with the password, which the
// client reads for each connection: amqp://user@host/?passwordfile=/run/secrets/rabbit. With amqps it also accepts cacertfile, certfile, keyfile,
// server_name_indication, and verify=verify_peer. Any other parameter is an error.
// https://www.rabbitmq.com/docs/uri-query-parameters
//
// With several hosts, each attempt to connect uses the next host. The order is random for each Client, so that a fleet
// of programs spreads over the nodes. After it has tried all hosts, the client waits for the next delay of
// Config.Reconnect.
//
// Dial returns a *ConnectError immediately if the URL is invalid. It also returns a *ConnectError if a host refuses the
// user, does not have the virtual host or has an untrusted certificate, and no other host accepts the connection. In this
// case, Dial does not wait for unreachable hosts, because all hosts of a cluster have the same users and virtual hosts. If
// no host is reachable, Dial retries until ctx is done. Canceling ctx after Dial has returned does not close the Client:
// call Close. After its first connection, a Client retries indefinitely, even if the broker refuses the connection. The only
// exception are the credentials of a URL without passwordfile: if the broker refuses nothing but them for 15 minutes, the client
// closes, and its methods and Worker.Run return an ErrClosed that explains the refusal.
func Dial(ctx context.Context, url string, config *Config) (*Client, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	addresses, err := amqpconn.ParseURL(url)
	if err != nil {
		return nil, err
	}
	if config != nil && config.TLS != nil && !addresses.TLS() {
		return nil, &ConnectError{Addr: addresses.First(), Reason: "Config.TLS is set, but the URL does not use TLS: " +
			"use amqps:// (default port 5671), or remove Config.TLS"}
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
	c.consuming = c.publishing.Sibling(c.cfg.linkConfig("consume"))
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
	_ = c.tasks.Go(func() { c.publishing.Run(running, publishing) }) // cannot fail, because the client is not closed yet
	_ = c.tasks.Go(func() { c.consuming.Run(running, consuming) })
	return c, nil
}

// Declare makes sure that all objects in t exist. It returns a *DeclareError with an explanation if the broker refuses an
// object, or is too old for an argument. If the broker refuses several objects, the error joins their errors. If the user may
// not configure an object, the object only has to exist. It waits for a connection until ctx is done, and then for the answers of the
// broker, for at most the ConfirmTimeout in total. It returns ErrDisconnected if the broker does not answer within the
// ConfirmTimeout, or if the connection is lost. You can declare the same topology repeatedly.
//
// A publisher that may start before the worker must declare the worker's objects: the result of Strategy.Route.Topology, and
// WorkerConfig.Topology. With the default Strategy, the declaration is
//
//	client.Declare(ctx, topology.Buckets{}.Topology("orders"))
func (c *Client) Declare(ctx context.Context, t topology.Topology) error {
	return c.declare(ctx, c.consuming, t)
}

// Close closes both connections and returns when all goroutines of the client have returned, or when ctx is done. Shut
// down the workers first, because the broker redelivers messages that they have not settled. Further calls wait in the
// same way.
func (c *Client) Close(ctx context.Context) error { return c.tasks.Close(ctx, c.stop) }

// CheckURL returns the error that Dial would return for an invalid URL, without connecting. The error does not contain
// any part of the URL, because any part could belong to a password.
func CheckURL(url string) error {
	_, err := amqpconn.ParseURL(url)
	return err
}

// linkConfig returns the configuration of the connection for the given purpose, "publish" or "consume".
func (c *Config) linkConfig(purpose string) amqpconn.LinkConfig {
	link := amqpconn.LinkConfig{
		Name: c.Name + " " + purpose, Logger: c.Logger, Dial: c.Dial, TLS: c.TLS,
		Credentials: c.Credentials, Refresh: c.CredentialsRefresh, Heartbeat: c.Heartbeat, Timeout: c.ConfirmTimeout, Reconnect: c.Reconnect,
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

func init() {
	inner.Of = func(client any) inner.Client {
		c := client.(*Client)
		return inner.Client{
			Consuming: c.consuming, Publishing: c.publishing, Reconnect: c.cfg.Reconnect, Name: c.cfg.Name, Publish: c.publishOwn,
			Declare:     func(ctx context.Context, t topology.Topology) error { return c.declare(ctx, c.publishing, t) },
			AwaitMature: c.awaitMature,
			Check: func(ctx context.Context, t topology.Topology) error {
				return c.declareOrCheck(ctx, c.publishing, t, true)
			},
			Read: func(d *amqpconn.Delivery, queue string) any {
				m := messageOf(d, queue, amqpconn.CloneTable(d.Headers))
				return &m
			},
			Refused: aboutQueue, Explain: explainDeclare,
		}
	}
}

// Healthy returns nil if both connections are open, the broker has not blocked publishing, and it answers on both
// connections before ctx is done. The deadline of ctx should be a few seconds away. If one of these conditions is not met,
// Healthy returns
//
//	ErrDisconnected  with the reason: the last connection error, or no answer
//	ErrBlocked       *BlockedError: a memory or disk alarm of the broker
//	ErrStalled       a confirm is late, and no other confirm has arrived since the message was sent
//	ErrClosed        the Client was closed
//	the cause of the cancellation, if ctx was canceled
//
// Use it for a readiness probe, because a program that cannot reach its broker, or cannot publish, should not receive
// requests. Do not use it for a liveness probe, because a restart of the program does not restore the broker, and the
// Client reconnects automatically.
func (c *Client) Healthy(ctx context.Context) error {
	publishing, err := c.publishing.Current()
	if err != nil {
		return err
	}
	if err := publishing.Blocked(); err != nil {
		return err
	}
	consuming, err := c.consuming.Current()
	if err != nil {
		return err
	}
	answers := make(chan error, 2)
	for _, conn := range []*amqpconn.Conn{publishing, consuming} {
		if err := c.tasks.Go(func() { answers <- c.ping(ctx, conn) }); err != nil {
			return err
		}
	}
	if err := cmp.Or(<-answers, <-answers); err != nil {
		return err
	}
	if c.messages.Silent() || c.copies.Silent() {
		return fmt.Errorf("%w: latest message is not confirmed", ErrStalled)
	}
	return nil
}

// ping sends a request on a connection and waits for the answer.
func (c *Client) ping(ctx context.Context, conn *amqpconn.Conn) error {
	err := conn.Ping(ctx)
	switch _, closed := c.consuming.Current(); {
	case err == nil:
		return nil
	case errors.Is(err, ErrClosed), errors.Is(closed, ErrClosed):
		return ErrClosed
	case errors.Is(ctx.Err(), context.Canceled): // a cancellation, unlike a deadline, is not the broker's fault
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: broker at %s does not answer: %w", ErrDisconnected, conn.Addr(), err)
}
