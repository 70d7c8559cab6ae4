package reprise

import (
	"context"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology"
)

// Client holds the connections to one broker: one for publishing, one for
// consuming, so that a broker which throttles publishers does not keep
// consumers from acknowledging. Both reconnect for ever. All methods are safe
// for concurrent use.
type Client struct {
	cfg        Config
	publishing *link
	consuming  *link
	messages   *publisher // of Publish
	copies     *publisher // of workers: what a user publishes must not disturb them
	declared   *declarer  // what copies need, on the publishing connection
	scheduled  *scheduler
	workers    atomic.Int64 // that were made

	stop context.CancelFunc
	wg   sync.WaitGroup // every goroutine

	mu     sync.Mutex
	closed bool          // no goroutine may be added any more
	joined chan struct{} // closed when all have ended
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
	addresses, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	if config != nil && config.TLS != nil && addresses[0].Scheme != "amqps" { // which is the same for all
		return nil, &ConnectError{Addr: addresses[0].addr, Reason: "Config.TLS is given, but the URL asks for a connection without TLS: " +
			"write amqps:// (its port is 5671 where none is named), or leave Config.TLS out"}
	}
	c := &Client{cfg: config.withDefaults(), joined: make(chan struct{})}
	c.publishing = newLink("publish", newRotation(addresses), c.cfg, &c.wg)
	publishing, err := c.publishing.connect(ctx)
	if err != nil {
		c.wg.Wait()
		return nil, err
	}
	c.consuming = newLink("consume", c.publishing.addresses.beside(), c.cfg, &c.wg)
	consuming, err := c.consuming.connect(ctx)
	if err != nil {
		publishing.end(closePatience)
		c.wg.Wait()
		return nil, err
	}

	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.messages = newPublisher(running, c)
	c.copies = newPublisher(running, c)
	c.declared = newDeclarer(c)
	c.scheduled = newScheduler(c)
	c.stop = stop
	c.wg.Go(func() { c.publishing.run(running, publishing) })
	c.wg.Go(func() { c.consuming.run(running, consuming) })
	c.wg.Go(c.messages.run)
	c.wg.Go(c.copies.run)
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
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		c.stop()
		go func() {
			c.wg.Wait()
			close(c.joined)
		}()
	}
	c.mu.Unlock()
	select {
	case <-c.joined:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// spawn runs f on a goroutine that Close waits for.
func (c *Client) spawn(f func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.wg.Go(f)
	return nil
}

// call runs a request to the broker, which the AMQP client cannot be told to
// give up. When ctx ends first, call returns and leaves the request to end by
// itself, at the latest with its connection; discard, if not nil, then cleans
// up what it made.
func call[T any](ctx context.Context, c *Client, request func() (T, error), discard func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	results := make(chan result)
	gaveUp := make(chan struct{})
	err := c.spawn(func() {
		v, err := request()
		select {
		case results <- result{v, err}:
		case <-gaveUp:
			if err == nil && discard != nil {
				discard(v)
			}
		}
	})
	if err != nil {
		return none, err
	}
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
		close(gaveUp)
		return none, context.Cause(ctx)
	}
}

// channel opens a channel on the link's present connection: see conn.open.
func (c *Client) channel(ctx context.Context, l *link) (*conn, *amqp.Channel, error) {
	conn, err := l.get(ctx)
	if err != nil {
		return nil, nil, err
	}
	ch, err := call(ctx, c, conn.open, conn.closeChannel)
	return conn, ch, err
}
