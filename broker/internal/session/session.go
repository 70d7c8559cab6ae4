// Package session implements the server side of an AMQP 0-9-1 connection, from the protocol header to the last byte.
//
//	            ┌────────────── reader ──────────────┐
//	socket ───► │ handshake ─► frames ─► channels    │ ───► vhost, queues
//	            └────────────────┬───────────────────┘             │
//	                             ▼ replies, confirms               ▼ deliveries
//	socket ◄───────────────── outbox ◄─────────────────────────────┘
//	            writer
//
// The reader goroutine owns the connection. It reads frames and changes the state. The writer goroutine writes the
// contents of the [outbox] to the socket. The reader adds replies to the outbox, commits of the store add confirms,
// and queues add deliveries, for example in the goroutine of a publisher. A third goroutine handles heartbeats. The
// cause of the session context states why the session was closed.
//
// The lock order is turn, session, queue, channel, confirms, outbox. A goroutine that blocks must not hold any of these
// locks except the turn. The turn is the right to change channels. The reader holds the turn while it handles frames, and
// may wait for the store. Between frames, a timer may take the turn. While the reader waits, it releases only the session
// lock, so that the broker can inspect the session, whose state does not change. The channel lock guards the fields of a
// channel that deliveries use. The lock of [confirms] guards the fields that commits of the store use.
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
	"github.com/reprisemq/reprise/broker/internal/quota"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/loglimit"
)

const (
	handshakeTimeout = 10 * time.Second
	// closeTimeout is the maximum time for the client to read the outbox and reply to connection.close.
	closeTimeout = 5 * time.Second
	// lingerTimeout is the maximum time for the client to close the socket after connection.close-ok. If the heartbeat
	// interval is shorter, it applies instead.
	lingerTimeout = 30 * time.Second
	// confirmEvery is the number of published messages after which the session sends the due confirms, even if the
	// reader has more work.
	confirmEvery = 256
)

// Config configures all sessions of a broker.
type Config struct {
	// VHost returns the virtual host with the given name, or nil.
	VHost func(name string) *vhost.VHost
	// Access authenticates users and checks their permissions.
	Access *access.Control
	// Quotas counts the connections and channels.
	Quotas Quotas
	// CertificateUser returns the user of a client certificate, for the mechanism EXTERNAL.
	CertificateUser func(*x509.Certificate) string

	ServerProperties amqpwire.Table
	ChannelMax       uint16
	FrameMax         uint32
	Heartbeat        time.Duration // heartbeat interval that the server offers
	MaxMessageSize   uint64
	Budget           *budget.Connections // memory limits of connections; nil: unlimited
	Alarms           alarm.Set           // publishing is blocked while an alarm is raised
	// Store saves messages. If it is nil, the messages are in memory only.
	Store store.Store
	// Stats counts messages and channels. If it is nil, the counts are discarded.
	Stats *stats.Node

	Log *slog.Logger
	// Failures limits the log messages about failed connections, because clients can cause any number of them. It may be nil.
	Failures *loglimit.Limit
}

// Quotas counts what the limits of virtual hosts and users limit. A nil Counter has no limit.
type Quotas struct {
	VHostConnections, UserConnections, UserChannels *quota.Counter
}

// Session is the server side of one AMQP connection. Serve must be called once. The other exported methods are safe
// for concurrent use.
type Session struct {
	config *Config
	conn   net.Conn
	log    *slog.Logger

	ctx    context.Context
	cancel context.CancelCauseFunc
	// serving is done when ctx is done, or earlier when Shutdown is called. After that, the reader does not wait for the
	// store, because the client does not read further replies.
	serving     context.Context
	stopServing context.CancelFunc

	in       *amqpwire.Reader
	out      *outbox
	received atomic.Uint64 // number of frames
	traffic  traffic
	stats    *stats.Node
	closing  atomic.Bool // connection.close or connection.close-ok was sent
	blocked  atomic.Bool // the reader does not read, because of an alarm
	waiting  atomic.Bool // the reader waits for the disk

	saturated atomic.Bool // a consumer has refused a message because memory is scarce

	contentBegun bool            // the client has started to publish a message since the last check
	ahead        int             // bytes of transient messages since the last wait of pace
	behind       <-chan struct{} // closed when a queue has loaded messages; nil: the connection does not wait
	closeSent    bool            // the client has closed the connection, and the session has sent connection.close-ok

	connected time.Time

	account  *budget.Account
	identity budget.Share // client properties and names
	buffer   budget.Share // for large frames

	// Results of the handshake.
	mechanism        string
	clientProperties amqpwire.Table
	user             string
	impersonator     bool
	vhost            *vhost.VHost
	uncount          []func() // undo the counts of the connection in Quotas
	channelMax       uint16
	frameMax         uint32
	heartbeat        time.Duration
	notifiesCancel   bool // the client supports basic.cancel from the server
	notifiesBlocked  bool // the client supports connection.blocked

	turn        sync.Mutex // required for changes to the following fields
	mu          sync.Mutex // also required for changes; sufficient for reads
	opened      bool       // the handshake is complete
	channels    map[uint16]*channel
	last        *channel // the last channel that a frame was for
	permissions permissions
	acks        acks
	items       []*queue.Item // reusable buffer for the items of one queue
	contents    contents

	confirms confirms

	ackTimer struct {
		sync.Mutex
		timer *time.Timer
		due   time.Time // zero: not running
	}
}

// New returns a session for a connection. The caller must call [Session.Serve].
func New(conn net.Conn, config *Config) *Session {
	ctx, cancel := context.WithCancelCause(context.Background())
	serving, cease := context.WithCancel(ctx)
	s := &Session{
		config:      config,
		conn:        conn,
		log:         config.Log.With("peer", conn.RemoteAddr().String()),
		ctx:         ctx,
		cancel:      cancel,
		serving:     serving,
		stopServing: cease,
		stats:       config.Stats,
		channels:    make(map[uint16]*channel),

		connected: time.Now(),
	}
	if s.stats == nil {
		s.stats = new(stats.Node)
	}
	s.account = config.Budget.Open(s.exceeded)
	s.identity = s.account.Share(budget.Properties)
	s.out = newOutbox(s.account)
	s.confirms.store, s.confirms.out = config.Store, s.out
	s.traffic.Conn = conn
	s.in = amqpwire.NewReader(&s.traffic, minFrameMax)
	s.buffer = s.account.Share(budget.Unfinished)
	s.in.Resized = func(by int) { s.buffer.Set(int64(by)) }
	return s
}

// Serve runs the session until the connection is closed and all its goroutines have returned. It returns an error if
// the handshake failed, or if the connection was closed without connection.close and without Abort.
func (s *Session) Serve() error {
	// Closing the socket unblocks the reader and the writer.
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
		// First write the remaining replies, for example connection.close-ok.
		_ = s.conn.SetWriteDeadline(time.Now().Add(closeTimeout))
		s.out.finish()
		if s.closeSent {
			s.discardAfterClose()
		}
		running.Wait()
	}
	s.cancel(err)
	s.out.finish()
	running.Wait()
	_ = s.conn.Close()
	s.closeAccount()

	if errors.Is(err, context.Canceled) {
		return nil // canceled by Abort
	}
	return err
}

// fail closes the connection with an error. After that, the session ignores all frames except connection.close-ok and
// connection.close.
func (s *Session) fail(e *exception.Error, method amqpwire.MethodID) {
	if s.closing.Swap(true) {
		return
	}
	s.config.Failures.Log(s.log, slog.LevelWarn, "closing the connection", "error", e, "method", method)
	s.release()
	s.sendClose(e, method)
}

func (s *Session) sendClose(e *exception.Error, method amqpwire.MethodID) {
	s.send(0, &amqpwire.ConnectionClose{
		ReplyCode: uint16(e.Code), ReplyText: shortstr(e.Error()),
		ClassID: method.Class(), MethodID: method.Method(),
	})
	_ = s.conn.SetDeadline(time.Now().Add(closeTimeout)) // includes writes
}

// discard reads and ignores data until the client has closed its side, but for at most closeTimeout. If the session
// closed the socket while data was unread, the operating system would reset the connection, and the client might
// never read the error.
func (s *Session) discard() {
	_ = s.conn.SetReadDeadline(time.Now().Add(closeTimeout))
	_, _ = io.Copy(io.Discard, s.conn)
}

// discardAfterClose is like discard, with lingerTimeout, for use after connection.close-ok. The client may still be
// writing, and may not read the reply until it has finished. Shutdown makes discardAfterClose return.
func (s *Session) discardAfterClose() {
	timeout := lingerTimeout
	if s.heartbeat > 0 {
		timeout = min(timeout, s.heartbeat)
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(timeout))
	stop := context.AfterFunc(s.serving, func() { _ = s.conn.SetReadDeadline(time.Now()) })
	defer stop()
	_, _ = io.Copy(io.Discard, s.conn)
}

// Shutdown sends connection.close with the reason. It returns immediately. Serve returns when the connection is closed.
func (s *Session) Shutdown(reason string) {
	s.Force("broker forced connection closure with reason '" + reason + "'")
}

// Force is like Shutdown, but sends text to the client unchanged.
func (s *Session) Force(text string) {
	s.stopServing()
	if !s.closing.Swap(true) {
		s.sendClose(exception.New(exception.ConnectionForced, "%s", text), 0)
	}
}

// Abort closes the connection without connection.close.
func (s *Session) Abort() { s.cancel(context.Canceled) }

// lock locks the turn and the session for changes.
func (s *Session) lock() {
	s.turn.Lock()
	s.mu.Lock()
}

func (s *Session) unlock() {
	s.mu.Unlock()
	s.turn.Unlock()
}

// release requeues the unacked messages of all channels, and deletes the channels and the exclusive queues of the
// connection.
func (s *Session) release() {
	for _, ch := range s.channels {
		ch.release()
		s.drop(ch)
	}
	if s.vhost != nil {
		s.vhost.OwnerGone(s)
	}
	for _, undo := range s.uncount {
		undo()
	}
	s.uncount = nil
}

// exceeded closes the connection because its memory limit, or the memory limit for all connections, is exceeded. It
// drops all unwritten data, which may have caused the excess.
func (s *Session) exceeded(e budget.Excess) {
	if s.closing.Swap(true) {
		return
	}
	s.stopServing() // unblock a waiting reader
	s.lock()
	defer s.unlock()
	err := excess(e)
	s.config.Failures.Log(s.log, slog.LevelWarn, "closing the connection", "error", err, "kept", e.Used)
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

// closeAccount closes the memory account of a closed session.
func (s *Session) closeAccount() {
	s.identity.Set(0)
	s.buffer.Set(0)
	s.out.drop()
	if left := s.account.Close(); left != 0 {
		s.log.Error("memory account of a closed connection is not empty", "left", left)
	}
}

// Account returns the memory account of the connection.
func (s *Session) Account() *budget.Account { return s.account }

// send adds a method to the outbox. The encoding cannot fail, because names in replies arrived as short strings, and error
// messages are truncated.
func (s *Session) send(channel uint16, m amqpwire.Method) {
	s.out.write(func(b []byte) []byte { return s.appendMethod(b, channel, m) })
}

func (s *Session) appendMethod(b []byte, channel uint16, m amqpwire.Method) []byte {
	framed, err := amqpwire.AppendMethodFrame(b, channel, m)
	if err != nil {
		s.log.Error("cannot send method", "method", m.ID(), "error", err)
	}
	return framed // unchanged after an error
}

// shortstr truncates a text to the maximum length of a short string, in the same way as RabbitMQ.
func shortstr(text string) string {
	if len(text) <= 255 {
		return text
	}
	return text[:252] + "..."
}
