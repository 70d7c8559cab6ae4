package amqpconn

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/internal/testhook"
)

// Conn is one generation of a connection. A lost Conn is never revived, and its channels, deliveries and confirms are
// lost with it. A delivery can only be settled on a channel of its generation. The recovery of the client is disabled
// (amqp.Config.Recovery is nil), because it would revive channels without changing their pointers.
type Conn struct {
	raw     client
	tuned   tuning
	gen     uint64
	addr    string // host:port
	log     *slog.Logger
	tasks   *Tasks
	socket  *socket
	timeout time.Duration // for answers; see Timeout
	login   address       // with the user and the password of the connection; only refresh changes it

	lost       chan struct{} // closed when the connection has closed
	reason     error         // the reason; valid after lost is closed
	unreadable bool          // the client received data that it could not read; valid after lost is closed

	blockings  chan blocking // block and unblock notifications; closed after lost
	unanswered atomic.Int32  // number of requests whose answer is late; see ask
	givenUp    sync.Once

	extra chan struct{} // see Extra

	mu       sync.Mutex
	writable chan struct{} // closed unless the broker has blocked the connection
	blocked  string        // the reason for the block
	reads    time.Time     // when the broker last unblocked the connection; zero means never
}

// Generation returns the number of the connection within its Link, from 1.
func (c *Conn) Generation() uint64 { return c.gen }

// Addr returns the broker's host:port.
func (c *Conn) Addr() string { return c.addr }

// Logger returns the logger for events of the connection.
func (c *Conn) Logger() *slog.Logger { return c.log }

// Lost returns a channel that is closed when the connection has closed.
func (c *Conn) Lost() <-chan struct{} { return c.lost }

// Reason returns why the connection was closed. It is valid after Lost is closed.
func (c *Conn) Reason() error { return c.reason }

// FrameSize returns the negotiated maximum size of a frame; 0 means no limit.
func (c *Conn) FrameSize() int { return c.tuned.frameSize }

// ChannelMax returns the negotiated maximum number of channels.
func (c *Conn) ChannelMax() int { return c.tuned.channelMax }

// Heartbeat returns the negotiated interval of heartbeats.
func (c *Conn) Heartbeat() time.Duration { return c.tuned.heartbeat }

// Version returns the broker's version, or "" if the broker does not report it.
func (c *Conn) Version() string { return c.tuned.version }

// IsRabbitMQ reports whether the broker runs on Erlang. Compatible brokers also use the product name RabbitMQ, so the
// name is not sufficient.
func (c *Conn) IsRabbitMQ() bool { return strings.HasPrefix(c.tuned.platform, "Erlang") }

// youngQueue is the time after its declaration in which RabbitMQ can lose a quorum queue, with its confirmed messages, if the only node
// of the queue is killed. Ra keeps the names of the queues in a dets table, which stores a change after a second without
// other changes, and after 3 s at the latest (ra_directory.erl, dets.erl). With 3.10.8 and 4.3.6, queues were lost after 0.9 s, and after
// 2.8 s while other queues were deleted; none after 3.3 s.
const youngQueue = 3500 * time.Millisecond

// YoungQueue returns the time after its declaration in which the broker can lose a queue, or 0.
func (c *Conn) YoungQueue() time.Duration {
	switch {
	case testhook.YoungQueue != nil:
		return *testhook.YoungQueue
	case c.IsRabbitMQ():
		return youngQueue
	}
	return 0
}

// Timeout returns the time after which an answer is late. It is at least the time that the client needs to detect a dead
// connection.
func (c *Conn) Timeout() time.Duration { return max(c.timeout, 2*c.tuned.heartbeat) }

// watch waits until the connection has closed.
func (c *Conn) watch() {
	<-c.raw.ended()
	c.reason = ErrGone
	if err := c.raw.err(); err != nil {
		c.reason, c.unreadable = ended(err), c.raw.unreadable()
	}
	close(c.blockings)
	close(c.lost)
}

// blockedBy stores that the broker has blocked or unblocked the connection. It does not log, because a logger may block, and
// the client must read on. The link logs the events.
func (c *Conn) blockedBy(b blocking) {
	c.block(b.active, b.reason)
	select {
	case c.blockings <- b:
	default: // the buffer is full, because the logger or the observer blocks
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

// Writable returns a channel that is closed unless the broker has blocked the connection.
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

// leftToRead is called after the timeout has passed without an answer. It returns the time that the broker still has,
// because the timeout restarts when the broker unblocks the connection. While the connection is blocked, the result is
// the whole timeout.
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

// waitWritable waits until the connection is not blocked. A request on a blocked connection would not get an answer, and
// would keep its channel open.
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

// Closing reports whether the connection is closed or is about to close.
func (c *Conn) Closing() bool { return c.raw.isClosed() }

// Unreadable reports whether the connection was lost because the client could not read received data.
func (c *Conn) Unreadable() bool {
	if !c.Closing() {
		return false
	}
	<-c.lost // its channels close slightly earlier
	return c.unreadable
}

// GiveUp closes the connection, because the broker did not answer in time. The parameter after is the waiting time, for
// the log.
func (c *Conn) GiveUp(after time.Duration) {
	c.End(0) // before the log call, because a logger may block
	c.givenUp.Do(func() { c.log.Warn("broker does not read", "after", after) })
}

// End closes the connection and waits for the broker's answer, but not longer than timeout.
func (c *Conn) End(timeout time.Duration) {
	// The client cannot close the connection while a write is blocked.
	stuck := time.AfterFunc(timeout, func() { _ = c.socket.Close() })
	defer stuck.Stop()
	c.raw.close(time.Now().Add(timeout))
	<-c.lost
}
