// Package session is the server's side of one AMQP 0-9-1 connection, from the protocol header to the last byte.
//
//	            ┌────────────── reader ──────────────┐
//	socket ───► │ handshake ─► frames ─► channels    │ ───► vhost, queues
//	            └────────────────┬───────────────────┘             │
//	                             ▼ replies, confirms               ▼ deliveries
//	socket ◄───────────────── outbox ◄─────────────────────────────┘
//	            writer
//
// The reader goroutine owns the connection: it reads, decides and changes state. The writer goroutine only empties the
// [outbox], where replies from the reader and deliveries from queues, which come in whatever goroutine published the
// message, meet. A third one sees to the heartbeats. Why a session ended is the cause of its context.
//
// Locks are taken in this order: turn, session, queue, channel, confirms, outbox. None is held while something blocks, but
// the turn, which is that of whoever changes channels: the reader while it handles frames, and may wait for the store, or in
// between a timer. While the reader waits it lets go of the session's own lock, which is all that the broker needs when it
// is asked about the session: nothing changes then. The parts of a channel that a queue reaches by its deliveries are behind
// the channel's own lock, and what the store reaches by its commits behind that of [confirms].
package session

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/broker/internal/budget"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

const (
	handshakeTimeout = 10 * time.Second
	// closeTimeout is how long a peer has to answer connection.close, and to read what it was still to be sent.
	closeTimeout = 5 * time.Second
	// lingerTimeout is how long a peer has to close the socket after connection.close-ok, or as long as its heartbeat if that
	// is shorter.
	lingerTimeout = 30 * time.Second
	// confirmEvery bounds how many confirms are held back to be told in one frame.
	confirmEvery = 256
)

// Config is what all sessions of a broker have in common.
type Config struct {
	// VHost returns the virtual host of that name, or nil.
	VHost func(name string) *vhost.VHost
	// Access knows who may connect, and do what.
	Access *access.Control
	// CertificateUser returns the user a client certificate belongs to, for the mechanism EXTERNAL.
	CertificateUser func(*x509.Certificate) string

	ServerProperties amqpwire.Table
	ChannelMax       uint16
	FrameMax         uint32
	Heartbeat        time.Duration // what the server proposes
	MaxMessageSize   uint64
	Budget           *budget.Connections // for what clients make the broker keep; nil: any amount
	Alarms           alarm.Set           // while one is raised, nobody publishes
	// Store keeps messages; nil: nothing is kept.
	Store store.Store
	// Stats counts messages and channels; nil: nobody wants to know.
	Stats *stats.Node

	Log *slog.Logger
}

// Session is one connection.
type Session struct {
	config *Config
	conn   net.Conn
	log    *slog.Logger

	ctx    context.Context
	cancel context.CancelCauseFunc
	// serving ends with ctx, or earlier when Shutdown is called: then nobody reads any more what the session has to say.
	serving context.Context
	cease   context.CancelFunc

	in       *amqpwire.Reader
	out      *outbox
	received atomic.Uint64 // frames
	traffic  traffic
	stats    *stats.Node
	closing  atomic.Bool // connection.close has been sent, or answered
	blocked  atomic.Bool // the client is not read, since something has run short
	waiting  atomic.Bool // nor is it now, since the reader waits for the disk

	saturated atomic.Bool // a consumer has been refused a message for want of memory

	begun   bool // a message, since it was last looked at: the client is about to publish
	lingers bool // the client has closed the connection, and has been told so

	connected time.Time

	account *budget.Account
	kept    budget.Share // client properties and names
	buffer  budget.Share // for large frames

	// What the handshake agreed on.
	mechanism        string
	clientProperties amqpwire.Table
	user             string
	vhost            *vhost.VHost
	channelMax       uint16
	frameMax         uint32
	heartbeat        time.Duration
	notifiesCancel   bool // the client understands basic.cancel
	notifiesBlocked  bool // the client understands connection.blocked

	turn        sync.Mutex // to change the following
	mu          sync.Mutex // guards it, for those who look
	opened      bool       // the handshake is over
	channels    map[uint16]*channel
	last        *channel // the one that was asked for last
	permissions permissions
	acks        acks
	items       []*queue.Item // room for those of one queue
	contents    contents

	confirms confirms

	ackTimer struct {
		sync.Mutex
		timer *time.Timer
		due   time.Time // zero: the timer is not running
	}
}

// New returns a session on a connection, to be run by [Session.Serve].
func New(conn net.Conn, config *Config) *Session {
	ctx, cancel := context.WithCancelCause(context.Background())
	serving, cease := context.WithCancel(ctx)
	s := &Session{
		config:   config,
		conn:     conn,
		log:      config.Log.With("peer", conn.RemoteAddr().String()),
		ctx:      ctx,
		cancel:   cancel,
		serving:  serving,
		cease:    cease,
		stats:    config.Stats,
		channels: make(map[uint16]*channel),

		connected: time.Now(),
	}
	if s.stats == nil {
		s.stats = new(stats.Node)
	}
	s.account = config.Budget.Open(s.exceeded)
	s.kept = s.account.Share(budget.Properties)
	s.out = newOutbox(s.account)
	s.confirms.store, s.confirms.out = config.Store, s.out
	s.traffic.Conn = conn
	s.in = amqpwire.NewReader(&s.traffic, minFrameMax)
	s.buffer = s.account.Share(budget.Unfinished)
	s.in.Resized = func(by int) { s.buffer.Set(int64(by)) }
	return s
}

// Serve runs the session until it has ended and everything it started has, and returns why. An end in order is nil.
func (s *Session) Serve() error {
	// Whatever ends the session, both goroutines that may be blocked on the socket come free.
	stop := context.AfterFunc(s.ctx, func() { _ = s.conn.Close() })
	defer stop()

	var running sync.WaitGroup
	running.Go(func() {
		if err := s.out.run(&s.traffic); err != nil {
			s.cancel(fmt.Errorf("write: %w", err))
		}
	})
	err := s.read()
	s.lock()
	s.release()
	s.unlock()
	s.stopAckTimer()
	s.contents.stop()
	if err == nil {
		// What the client was still to be told goes out first: connection.close-ok, at the least.
		_ = s.conn.SetWriteDeadline(time.Now().Add(closeTimeout))
		s.out.finish()
		if s.lingers {
			s.linger()
		}
		running.Wait()
	}
	s.cancel(err)
	s.out.finish()
	running.Wait()
	_ = s.conn.Close()
	s.closeAccount()

	if errors.Is(err, context.Canceled) {
		return nil // by Abort
	}
	return err
}

// fail tells the client of an error that costs it the connection. From then on all it sends is ignored but the answer.
func (s *Session) fail(e *exception.Error, method amqpwire.MethodID) {
	if s.closing.Swap(true) {
		return
	}
	s.log.Warn("closing the connection", "error", e, "method", method)
	s.release()
	s.sendClose(e, method)
}

func (s *Session) sendClose(e *exception.Error, method amqpwire.MethodID) {
	s.send(0, &amqpwire.ConnectionClose{
		ReplyCode: uint16(e.Code), ReplyText: shortstr(e.Error()),
		ClassID: method.Class(), MethodID: method.Method(),
	})
	_ = s.conn.SetDeadline(time.Now().Add(closeTimeout)) // for what is to be written, too
}

// discard reads on without understanding until the client has closed its side. To close the socket with bytes unread
// would reset it, and could take the error away from the client before it was read.
func (s *Session) discard() {
	_ = s.conn.SetReadDeadline(time.Now().Add(closeTimeout))
	_, _ = io.Copy(io.Discard, s.conn)
}

// linger is discard after connection.close-ok. The client may still be writing and read the answer only after that. Shutdown
// ends it.
func (s *Session) linger() {
	timeout := lingerTimeout
	if s.heartbeat > 0 {
		timeout = min(timeout, s.heartbeat)
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(timeout))
	stop := context.AfterFunc(s.serving, func() { _ = s.conn.SetReadDeadline(time.Now()) })
	defer stop()
	_, _ = io.Copy(io.Discard, s.conn)
}

// Shutdown ends the session in order, as a server does that goes down, and tells the client the reason. It returns at once;
// Serve returns when it is done.
func (s *Session) Shutdown(reason string) {
	s.Force("broker forced connection closure with reason '" + reason + "'")
}

// Force is Shutdown in words of the caller's own.
func (s *Session) Force(text string) {
	s.cease()
	if !s.closing.Swap(true) {
		s.sendClose(exception.New(exception.ConnectionForced, "%s", text), 0)
	}
}

// Abort ends the session without a word.
func (s *Session) Abort() { s.cancel(context.Canceled) }

// lock takes the turn to change something.
func (s *Session) lock() {
	s.turn.Lock()
	s.mu.Lock()
}

func (s *Session) unlock() {
	s.mu.Unlock()
	s.turn.Unlock()
}

// release gives everything back that the connection had: what was unacked on its channels, its exclusive queues.
func (s *Session) release() {
	for _, ch := range s.channels {
		ch.release()
		s.drop(ch)
	}
	if s.vhost != nil {
		s.vhost.OwnerGone(s)
	}
}

// exceeded closes the connection of a client that makes the broker keep too much. The client loses what it has not read: that
// may be what is too much.
func (s *Session) exceeded(e budget.Excess) {
	if s.closing.Swap(true) {
		return
	}
	s.cease() // whatever the reader waits for
	s.lock()
	defer s.unlock()
	err := excess(e)
	s.log.Warn("closing the connection", "error", err, "kept", e.Used)
	s.out.drop()
	s.release()
	s.sendClose(err, 0)
}

func excess(e budget.Excess) *exception.Error {
	if e.Together {
		return exception.New(exception.ResourceError, "memory limit of all connections (%d bytes) exceeded, and this one keeps the most, "+
			"mostly %v; to raise it, set TotalConnectionMemoryLimit or --total-connection-memory-limit", e.Limit, e.Mostly)
	}
	return exception.New(exception.ResourceError, "memory limit of a connection (%d bytes) exceeded, mostly by %v; "+
		"to raise it, set ConnectionMemoryLimit or --connection-memory-limit", e.Limit, e.Mostly)
}

// closeAccount ends the account of a session that has ended.
func (s *Session) closeAccount() {
	s.kept.Set(0)
	s.buffer.Set(0)
	s.out.drop()
	if left := s.account.Close(); left != 0 {
		s.log.Error("the memory of a connection was not counted correctly", "left", left)
	}
}

// Account returns what the connection makes the broker keep.
func (s *Session) Account() *budget.Account { return s.account }

// send puts a method into the outbox. Replies are made here from names that came over the wire as short strings, and
// texts are cut to fit, so that encoding cannot fail.
func (s *Session) send(channel uint16, m amqpwire.Method) {
	s.out.write(func(b []byte) []byte { return s.appendMethod(b, channel, m) })
}

func (s *Session) appendMethod(b []byte, channel uint16, m amqpwire.Method) []byte {
	framed, err := amqpwire.AppendMethodFrame(b, channel, m)
	if err != nil {
		s.log.Error("method not sent", "method", m.ID(), "error", err)
	}
	return framed // as it came, if it failed
}

// shortstr cuts a text to what a short string holds, where RabbitMQ cuts it.
func shortstr(text string) string {
	if len(text) <= 255 {
		return text
	}
	return text[:252] + "..."
}
