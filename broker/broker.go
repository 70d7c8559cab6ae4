// Package broker provides an embeddable message broker. The broker implements AMQP 0-9-1 with RabbitMQ's extensions,
// and behaves like RabbitMQ 4.3. It keeps its state in memory or, if [Config.Store] is set, on disk.
//
//	b, err := broker.New(broker.Config{})          // does not listen yet
//	go b.Serve(listener)                           // clients in any language
//	client, err := reprise.Dial(ctx, "amqp://guest:guest@broker/", &reprise.Config{Dial: b.DialContext})
//	b.Shutdown(ctx)                                // closes the connections and stops all goroutines
//
// A process or a test can run many Brokers. They share nothing but a pool of write buffers. A Broker reads the clock only
// through package time, and [Broker.DialContext] uses no socket. A broker and its clients can therefore run in a
// testing/synctest bubble, where hours of waiting pass instantly.
//
// The broker supports:
//
//   - direct, fanout, topic and headers exchanges, alternate exchanges, and bindings between exchanges
//   - classic and quorum queues with time to live, dead-lettering, length limits, priorities, queue TTLs, delivery limits and
//     delayed retries
//   - publisher confirms, mandatory returns, transactions and direct reply-to
//   - prefetch, priorities and acknowledgement timeouts of consumers, and single active consumers
//   - virtual hosts, users and permissions
//   - TLS
//   - connection.blocked while memory or disk space is low
//   - RabbitMQ's management HTTP API and metrics ([Broker.Management], [Broker.Metrics])
//
// With a data directory, durable objects and the persistent messages in durable queues survive a restart or a crash. A
// publisher confirm for such a message means that the message is on disk. Queues that are long in relation to
// [Config.MessageCache] wait on disk. Without a data directory, the state is lost when the process exits. The file
// docs/compatibility.md lists the differences from RabbitMQ.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/management"
	"github.com/reprisemq/reprise/broker/internal/node"
)

// ErrClosed is returned by Serve and DialContext after Shutdown has been called.
var ErrClosed = node.ErrClosed

// Broker is a running broker. A Broker is safe for concurrent use.
type Broker struct {
	config     Config
	node       *node.Node
	disk       disk
	management *management.Handler

	dialled atomic.Uint64 // number of connections that DialContext has opened so far

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
}

// New returns a broker that does not listen yet; see Serve. The zero Config is valid. New returns an error if the
// configuration is invalid, or if the data directory cannot be used.
func New(config Config) (*Broker, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	b := &Broker{config: config, listeners: make(map[net.Listener]struct{})}
	if err := b.open(); err != nil {
		return nil, err
	}
	b.management = management.New(b.node, b.addresses, config.Logger)
	if err := b.begin(); err != nil {
		return nil, errors.Join(err, b.Shutdown(context.Background())) // stops the timers that loaded queues may have started
	}
	return b, nil
}

// begin applies the configuration to the loaded state. The user guest and the virtual host "/" are created only once
// per data directory, because an operator may delete them later. begin records their creation as its last step, so that
// the next start creates them if this start fails midway.
func (b *Broker) begin() error {
	if err := b.importDefinitions(); err != nil {
		return fmt.Errorf("broker: Config.Definitions: %w", err)
	}
	if err := b.addUsers(); err != nil {
		return err
	}
	b.node.Begin()
	return nil
}

// Serve accepts connections until Shutdown is called or the listener fails, and then closes the listener. After
// Shutdown, Serve returns [ErrClosed]. A Broker can serve several listeners at the same time.
//
// The default user guest with its default password can log in only from this machine: over loopback, a Unix socket or
// [Broker.DialContext]. While this login is enabled, Serve returns an error for a listener that other machines could reach.
func (b *Broker) Serve(l net.Listener) error {
	defer l.Close()
	if !loopback(l.Addr()) && b.DefaultLogin() {
		return fmt.Errorf("broker: cannot listen on %v: user %q has the default password (set Config.Users, or listen on 127.0.0.1)", l.Addr(), access.DefaultUser)
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return ErrClosed
	}
	b.listeners[l] = struct{}{}
	b.mu.Unlock()

	b.config.Logger.Info("listening", "address", l.Addr().String())
	log := acceptLog{log: b.config.Logger}
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			log.accepted()
			err = b.node.Serve(conn)
		case outOfFiles(err):
			// If Serve returned an error here, any client could stop the broker by exhausting its file descriptors.
			log.failed(err)
			if b.node.Wait(acceptPause) {
				continue
			}
		}
		if err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.listeners, l)
			if b.closed {
				return ErrClosed
			}
			return fmt.Errorf("broker: %w", err)
		}
	}
}

// DialContext connects to the broker without a socket. It has the signature of net.Dialer.DialContext, but ignores the
// network and the address.
func (b *Broker) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	client, server := net.Pipe()
	if err := b.node.Serve(memoryConn{server, memoryAddr(b.dialled.Add(1))}); err != nil {
		return nil, err
	}
	return client, nil
}

// memoryConn is an in-memory connection with a unique number as its remote address.
type memoryConn struct {
	net.Conn
	remote memoryAddr
}

func (c memoryConn) RemoteAddr() net.Addr { return c.remote }
func (c memoryConn) LocalAddr() net.Addr  { return memoryAddr(0) }

type memoryAddr uint64

func (memoryAddr) Network() string  { return "pipe" }
func (a memoryAddr) String() string { return fmt.Sprintf("memory:%d", uint64(a)) }

// Shutdown stops the listeners and closes the connections with the code 320 (CONNECTION_FORCED), as RabbitMQ does on
// shutdown. It waits until all goroutines of the broker have returned and all durable data is on disk. If ctx is done
// first, Shutdown cuts the connections, and waits up to five more seconds for a disk that is full or does not respond,
// and up to five more seconds for a [Broker.Backup]. The returned error then wraps the cause of the cancellation and, if
// one of these timeouts has expired, reports the timeout. After such a timeout, the data directory is left as after a
// crash: unconfirmed messages may be lost, and the next broker redelivers delivered messages. The process must exit
// before another broker can use the directory. Further calls to Shutdown are harmless.
func (b *Broker) Shutdown(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	for l := range b.listeners {
		_ = l.Close()
	}
	b.mu.Unlock()
	return errors.Join(b.node.Shutdown(ctx), b.disk.close(ctx, true))
}

// QueueStats contains the statistics of a queue at one point in time.
type QueueStats struct {
	VHost     string
	Name      string
	Ready     int // messages waiting for a consumer
	Unacked   int // messages delivered and not yet settled
	Consumers int
}

// Queues returns the statistics of all queues, sorted by virtual host and name. It omits the pseudo-queues of direct
// reply-to.
func (b *Broker) Queues() []QueueStats {
	var all []QueueStats
	for _, v := range b.node.VHosts() {
		for _, q := range v.Queues() {
			s := q.Stats()
			all = append(all, QueueStats{VHost: v.Name(), Name: q.Name(), Ready: s.Ready, Unacked: s.Unacked, Consumers: s.Consumers})
		}
	}
	return all
}

func loopback(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return a.Network() == "pipe"
}

// discard is the default logger.
var discard = slog.New(slog.DiscardHandler)
