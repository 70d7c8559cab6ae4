package reprise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// conn is one generation of a connection: it is lost once, and never comes
// back. What belongs to it (channels, deliveries, confirms) is lost with it,
// which is what fences acknowledgements: a delivery of one generation can only
// ever be settled on a channel of that generation. The AMQP client's own
// recovery revives channels behind the same pointers; it stays off
// (amqp.Config.Recovery is nil).
type conn struct {
	*amqp.Connection
	gen  uint64 // from 1, per link
	addr string // host:port, for people
	log  *slog.Logger

	lost   chan struct{} // closed when the connection is gone
	reason error         // why; valid once lost is closed

	noted chan amqp.Blocking // when the broker blocks and unblocks it; closed after lost

	socket     *socket
	unreadable bool // the AMQP client could not read what came; valid once lost is closed

	maxBody atomic.Int64 // the largest body that the broker takes; 0: not known

	timeout    time.Duration // for how long answers are waited for: see patience
	unanswered atomic.Int32  // requests whose answer is late: see ask
	givenUp    sync.Once

	spare chan struct{} // a token for each channel beside those that serve everybody: see maxSpare

	mu       sync.Mutex
	writable chan struct{} // closed unless the broker has blocked this connection
	blocked  string        // why it is blocked
}

// watch follows the connection until it is gone.
//
// It tells nobody itself, the link does: a logger that is stuck would make the AMQP
// client drop the notification that publishing may go on.
func (c *conn) watch(closes <-chan *amqp.Error, blocks <-chan amqp.Blocking) {
	defer close(c.noted)
	defer close(c.lost)
	for {
		select {
		case err, ok := <-closes:
			if ok {
				c.reason = inWords(err)
				c.unreadable = !err.Server && !c.socket.failed.Load()
				continue // the channel is closed next
			}
			if c.reason == nil {
				c.reason = errGone
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

func (c *conn) block(blocked bool, reason string) {
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
		}
	}
}

// mayWrite returns a channel that is closed while the broker reads what is
// published.
func (c *conn) mayWrite() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writable
}

// blocking returns a *BlockedError if the broker has blocked this connection.
func (c *conn) blocking() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.writable:
		return nil
	default:
		return &BlockedError{Reason: c.blocked}
	}
}

func (c *conn) isLost() bool {
	select {
	case <-c.lost:
		return true
	default:
		return false
	}
}

// choked reports whether the connection is lost because of something that the
// AMQP client could not read.
func (c *conn) choked() bool {
	if !c.IsClosed() {
		return false
	}
	<-c.lost // its channels end a little earlier
	return c.unreadable
}

// patience is how long answers to requests are waited for that cost more to give up
// than to wait for: for the time in which a dead connection is noticed, at least.
func (c *conn) patience(timeout time.Duration) time.Duration {
	return max(timeout, 2*c.Config.Heartbeat)
}

// giveUp ends the connection, whose broker has not answered for some time.
func (c *conn) giveUp(after time.Duration) {
	c.givenUp.Do(func() { c.log.Warn("broker does not read", "after", after) })
	c.end(0)
}

// end closes the connection, waiting for the broker's answer at most patience.
func (c *conn) end(patience time.Duration) {
	_ = c.CloseDeadline(time.Now().Add(patience)) // it is closed, whatever the error
	<-c.lost
}

// minChannels is how many channels a connection needs: two to publish on, one to declare
// and to ask for answers, and one beside (see maxSpare).
const minChannels = 4

// dial opens one connection. Errors that trying the same address again cannot
// help are *ConnectError.
func (l *link) dial(ctx context.Context, a address) (*conn, error) {
	patience := l.addresses.patience(a)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()

	properties := amqp.NewConnectionProperties()
	properties["product"] = "Reprise"
	properties.SetClientConnectionName(l.name)
	config := amqp.Config{
		Heartbeat:  l.cfg.Heartbeat,
		Properties: properties,
		Recovery:   nil, // see conn
	}
	if l.cfg.TLS != nil {
		config.TLSClientConfig = l.cfg.TLS.Clone() // the client fills in ServerName, of this address
	}

	// The client's handshake knows no context: closing the socket ends it.
	abort := func() bool { return false }
	var used *socket
	config.Dial = func(network, addr string) (net.Conn, error) {
		plain, err := l.cfg.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if err := plain.SetDeadline(time.Now().Add(patience)); err != nil {
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
		_ = raw.CloseDeadline(time.Now().Add(patience))
		return nil, &ConnectError{Addr: a.addr, Reason: fmt.Sprintf(
			"a connection may have %d channels, and needs %d: raise channel_max, in the URL or on the broker", n, minChannels)}
	}

	open := make(chan struct{})
	close(open)
	l.gen++
	c := &conn{
		Connection: raw, gen: l.gen, addr: a.addr, log: l.log.With("broker", a.addr),
		lost: make(chan struct{}), noted: make(chan amqp.Blocking, 64), socket: used, writable: open, timeout: l.cfg.ConfirmTimeout,
		spare: newSpare(raw.Config.ChannelMax),
	}
	closes := raw.NotifyClose(make(chan *amqp.Error, 1))
	blocks := raw.NotifyBlocked(make(chan amqp.Blocking, 64))
	l.wg.Go(func() { c.watch(closes, blocks) })
	return c, nil
}
