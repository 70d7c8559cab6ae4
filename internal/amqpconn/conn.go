package amqpconn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Conn is one generation of a connection. It is lost once and never comes back. Its
// channels, deliveries and confirms are lost with it: a delivery of one generation can
// only be settled on a channel of that generation. The client's own recovery would revive
// channels behind the same pointers, so it stays off (amqp.Config.Recovery is nil).
type Conn struct {
	raw       *amqp.Connection
	frameSize int
	gen       uint64
	addr      string // host:port
	log       *slog.Logger
	tasks     *Tasks
	socket    *socket
	timeout   time.Duration // for answers: see Timeout

	lost       chan struct{} // closed when the connection is gone
	reason     error         // why; valid once lost is closed
	unreadable bool          // the client could not read what came; valid once lost is closed

	noted      chan amqp.Blocking // when the broker blocks and unblocks it; closed after lost
	unanswered atomic.Int32       // requests whose answer is late: see ask
	givenUp    sync.Once

	extra chan struct{} // see Extra

	mu       sync.Mutex
	writable chan struct{} // closed unless the broker has blocked this connection
	blocked  string        // why it is blocked
	reads    time.Time     // since when the broker has read again; zero: always
}

// Generation counts the connections of a Link, from 1.
func (c *Conn) Generation() uint64 { return c.gen }

// Addr is the broker's host:port.
func (c *Conn) Addr() string { return c.addr }

// Logger is for events of the connection.
func (c *Conn) Logger() *slog.Logger { return c.log }

// Lost is closed when the connection is gone.
func (c *Conn) Lost() <-chan struct{} { return c.lost }

// Reason is why the connection is gone. It is valid once Lost is closed.
func (c *Conn) Reason() error { return c.reason }

// FrameSize is the agreed maximum size of a frame; 0 means no limit.
func (c *Conn) FrameSize() int { return c.frameSize }

// ChannelMax is the agreed maximum number of channels.
func (c *Conn) ChannelMax() int { return int(c.raw.Config.ChannelMax) }

// Heartbeat is the agreed interval of heartbeats.
func (c *Conn) Heartbeat() time.Duration { return c.raw.Config.Heartbeat }

// Version is the broker's version, "" if it does not tell.
func (c *Conn) Version() string {
	version, _ := c.raw.Properties["version"].(string)
	return version
}

// IsRabbitMQ reports whether the broker runs on Erlang. Brokers that only behave as RabbitMQ
// does call themselves RabbitMQ, too.
func (c *Conn) IsRabbitMQ() bool {
	platform, _ := c.raw.Properties["platform"].(string)
	return strings.HasPrefix(platform, "Erlang")
}

// Timeout is how long to wait for an answer that is cheaper to wait for than to give up: at
// least the time in which a dead connection is noticed.
func (c *Conn) Timeout() time.Duration { return max(c.timeout, 2*c.raw.Config.Heartbeat) }

// watch follows the connection until it is gone.
//
// It does not log: the client drops a notification that is not taken within 5 s, and a
// logger may be stuck. The link logs.
func (c *Conn) watch(closes <-chan *amqp.Error, blocks <-chan amqp.Blocking) {
	defer close(c.noted)
	defer close(c.lost)
	for {
		select {
		case err, ok := <-closes:
			if ok {
				c.reason = ended(err)
				c.unreadable = !err.Server && !c.socket.failed.Load()
				continue // the channel is closed next
			}
			if c.reason == nil {
				c.reason = ErrGone
			}
			return
		case b, ok := <-blocks:
			if !ok {
				blocks = nil
				continue
			}
			c.block(b.Active, b.Reason)
			select {
			case c.noted <- b:
			default: // the logger or the observer is stuck
			}
		}
	}
}

func (c *Conn) block(blocked bool, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blocked = reason
	select {
	case <-c.writable:
		if blocked {
			c.writable = make(chan struct{})
		}
	default:
		if !blocked {
			close(c.writable)
			c.reads = time.Now()
		}
	}
}

// Writable returns a channel that is closed while the broker reads publications.
func (c *Conn) Writable() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writable
}

// Blocked returns a *BlockedError if the broker has blocked this connection.
func (c *Conn) Blocked() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.writable:
		return nil
	default:
		return &BlockedError{Reason: c.blocked}
	}
}

// leftToRead returns how much of a time the broker has left to read, and answer. It has all of
// it while it has blocked the connection, and from when it has ended that.
func (c *Conn) leftToRead(timeout time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.writable:
		return timeout - time.Since(c.reads)
	default:
		return timeout
	}
}

// waitWritable waits while the broker has blocked the connection: a request would get no
// answer and keep its channel.
func (c *Conn) waitWritable(ctx context.Context) error {
	select {
	case <-c.Writable():
		return nil
	case <-c.lost:
		return c.reason
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Conn) isLost() bool {
	select {
	case <-c.lost:
		return true
	default:
		return false
	}
}

// Closing reports whether the connection is lost, or is about to be.
func (c *Conn) Closing() bool { return c.raw.IsClosed() }

// Unreadable reports whether the connection is lost because of something that the client
// could not read.
func (c *Conn) Unreadable() bool {
	if !c.Closing() {
		return false
	}
	<-c.lost // its channels end a little earlier
	return c.unreadable
}

// GiveUp ends the connection, whose broker has not answered for some time.
func (c *Conn) GiveUp(after time.Duration) {
	c.End(0) // first: a logger may be stuck
	c.givenUp.Do(func() { c.log.Warn("broker does not read", "after", after) })
}

// End closes the connection, and waits for the broker's answer at most for the timeout.
func (c *Conn) End(timeout time.Duration) {
	// The client does not end a connection on which a write is stuck.
	stuck := time.AfterFunc(timeout, func() { _ = c.socket.Close() })
	defer stuck.Stop()
	_ = c.raw.CloseDeadline(time.Now().Add(timeout)) // it is closed, whatever the error
	<-c.lost
}

// minChannels is the number of channels that a connection needs: two to publish on, one to
// declare and to ask for answers, and one bulkhead.
const minChannels = 4

// dial opens one connection. Errors that trying the same address again cannot help are
// *ConnectError.
func (l *Link) dial(ctx context.Context, a address) (*Conn, error) {
	timeout := l.addresses.timeout(a)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()

	properties := amqp.NewConnectionProperties()
	properties["product"] = "Reprise"
	properties.SetClientConnectionName(l.name)
	config := amqp.Config{
		Heartbeat:  l.cfg.Heartbeat,
		Properties: properties,
		Recovery:   nil, // see Conn
	}
	if l.cfg.TLS != nil {
		config.TLSClientConfig = l.cfg.TLS.Clone() // the client fills in ServerName, of this address
	}

	// The client's handshake takes no context: closing the socket ends it.
	abort := func() bool { return false }
	var used *socket
	config.Dial = func(network, addr string) (net.Conn, error) {
		plain, err := l.cfg.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if err := plain.SetDeadline(time.Now().Add(timeout)); err != nil {
			return nil, errors.Join(err, plain.Close())
		}
		abort = context.AfterFunc(ctx, func() { _ = plain.Close() })
		used = &socket{Conn: plain}
		return used, nil
	}

	url := a.url
	if l.cfg.Heartbeat != 0 {
		url = a.withoutHeartbeat()
	} else {
		config.Heartbeat = DefaultHeartbeat
	}
	raw, err := amqp.DialConfig(url, config)
	live := abort()
	if used != nil && !live {
		err = context.Cause(ctx) // aborted, perhaps in the last moment
	}
	if err != nil {
		if raw != nil {
			_ = raw.CloseDeadline(time.Now()) // ends its goroutines
		}
		return nil, l.explain(a, used, err)
	}

	if n := raw.Config.ChannelMax; n < minChannels {
		_ = raw.CloseDeadline(time.Now().Add(timeout))
		return nil, &ConnectError{Addr: a.addr, Reason: fmt.Sprintf(
			"a connection may have %d channels, and needs %d: raise channel_max, in the URL or on the broker", n, minChannels)}
	}

	open := make(chan struct{})
	close(open)
	l.gen++
	c := &Conn{
		raw: raw, frameSize: raw.Config.FrameSize, gen: l.gen, addr: a.addr, log: l.log.With("broker", a.addr), tasks: l.tasks, socket: used, timeout: l.cfg.Timeout,
		lost: make(chan struct{}), noted: make(chan amqp.Blocking, 64), writable: open,
		extra: make(chan struct{}, min(maxExtraChannels, raw.Config.ChannelMax/2, raw.Config.ChannelMax-minChannels+1)),
	}
	used.watchWrites(c.Timeout(), func() (left time.Duration) {
		if left = c.leftToRead(c.Timeout()); left <= 0 || c.Closing() {
			c.GiveUp(c.Timeout())
		}
		return left
	})
	closes := raw.NotifyClose(make(chan *amqp.Error, 1))
	blocks := raw.NotifyBlocked(make(chan amqp.Blocking, 64))
	l.tasks.wg.Go(func() { c.watch(closes, blocks) }) // also where Close was called: the connection ends next
	return c, nil
}
