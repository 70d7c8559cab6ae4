// Package broker is a message broker to be embedded: a server that speaks RabbitMQ's AMQP 0-9-1 and does as RabbitMQ 4.3
// does, in the memory of this process or, with a [Config.Store], on disk.
//
//	b, err := broker.New(broker.Config{})          // nothing listens yet
//	go b.Serve(listener)                           // clients in any language
//	client, err := reprise.Dial(ctx, "amqp://guest:guest@broker/", &reprise.Config{Dial: b.DialContext})
//	b.Shutdown(ctx)                                // as a server goes down: connections closed, goroutines joined
//
// A process, or a test, may have many Brokers: they share nothing but spare room for what is to be written. Time comes from package time alone, and over
// [Broker.DialContext] no socket is involved, so that a broker and its clients run inside testing/synctest, where hours
// of waiting pass in an instant.
//
// What it has: direct, fanout, topic and headers exchanges, alternate exchanges, bindings between exchanges; classic and
// quorum queues with time to live, dead-lettering, length limits, priorities, leases, delivery limits and delayed retries;
// publisher confirms, mandatory returns, transactions, direct replies; prefetch, priorities and timeouts of consumers, single
// active ones; virtual hosts, users and permissions; TLS; connection.blocked when memory or the disk runs low; RabbitMQ's management
// HTTP API and metrics ([Broker.Management], [Broker.Metrics]).
//
// With a data directory, what is durable is there again after a restart, or a crash; a confirm says that a message is on
// disk; and messages that memory is too small for wait there. Without one, nothing survives the process. What else differs
// from RabbitMQ stands in docs/compatibility.md.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/management"
	"github.com/reprisemq/reprise/broker/internal/node"
)

// ErrClosed is returned by Serve and DialContext after Shutdown has been called.
var ErrClosed = node.ErrClosed

// Broker is a running broker. Its methods may be called at the same time.
type Broker struct {
	config     Config
	node       *node.Node
	disk       disk
	management *management.Handler

	dialled atomic.Uint64 // in memory

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
}

// New returns a broker that nobody is connected to yet. The zero Config is a good one. An error says what is wrong with
// the configuration, or with the data directory.
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
		return nil, errors.Join(err, b.Shutdown(context.Background())) // queues may have timers already
	}
	return b, nil
}

// begin adds what the configuration says to what was there. The user guest and the virtual host "/" are created once in the
// life of a data directory: if they are missing later, somebody has deleted them. That they were created is noted last, so
// that a start which failed midway is repeated.
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

// Serve accepts connections until Shutdown is called, and then returns [ErrClosed], or until the listener fails. It
// closes the listener. A broker may serve several.
//
// The default user guest with its default password gets in from this machine only: over loopback, a Unix socket or
// [Broker.DialContext]. As long as there is that login, Serve does not begin with a listener that is not on loopback.
func (b *Broker) Serve(l net.Listener) error {
	defer l.Close()
	if !loopback(l.Addr()) && b.DefaultLogin() {
		return fmt.Errorf("broker: refusing to listen on %v while user %q has the default password, which everybody knows: "+
			"set Config.Users, or listen on 127.0.0.1", l.Addr(), access.DefaultUser)
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return ErrClosed
	}
	b.listeners[l] = struct{}{}
	b.mu.Unlock()

	b.config.Logger.Info("listening", "address", l.Addr().String())
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			err = b.node.Serve(conn)
		case outOfFiles(err):
			// So would end a broker that anybody on the network could make it run out of.
			b.config.Logger.Error("connection not accepted", "error", err)
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

// acceptPause is how long connections have to end before the next one is accepted.
const acceptPause = 50 * time.Millisecond

// outOfFiles tells the errors that pass when others close their connections.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) ||
		errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ECONNABORTED)
}

// DialContext connects to the broker without a socket. Network and address are ignored, so that it fits wherever a
// net.Dialer's method of this name does.
func (b *Broker) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	client, server := net.Pipe()
	if err := b.node.Serve(inMemory{server, memoryAddr(b.dialled.Add(1))}); err != nil {
		return nil, err
	}
	return client, nil
}

// inMemory is a connection that can be told from others like it by its address, which is a number.
type inMemory struct {
	net.Conn
	remote memoryAddr
}

func (c inMemory) RemoteAddr() net.Addr { return c.remote }
func (c inMemory) LocalAddr() net.Addr  { return memoryAddr(0) }

type memoryAddr uint64

func (memoryAddr) Network() string  { return "pipe" }
func (a memoryAddr) String() string { return fmt.Sprintf("memory:%d", uint64(a)) }

// Shutdown stops listening, closes the connections as a server does that goes down (connection.close 320), and waits
// until everything the broker started has ended, and all that is to be kept is on disk. When ctx ends first, it cuts the
// connections and returns the context's error. Then it does not wait for a disk either that has not answered for five
// seconds, since it is full or hangs, nor for longer than that for a [Broker.Backup]: the error says so, what was not
// confirmed may be lost, and what was delivered comes again, as after a crash. (The process has to end, too, before the
// directory can be used again.) Calling it again is harmless.
func (b *Broker) Shutdown(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	for l := range b.listeners {
		_ = l.Close()
	}
	b.mu.Unlock()
	return errors.Join(b.node.Shutdown(ctx), b.disk.close(ctx, true))
}

// QueueStats is what a queue has at a moment.
type QueueStats struct {
	VHost     string
	Name      string
	Ready     int // messages waiting for a consumer
	Unacked   int // messages with a consumer, not yet settled
	Consumers int
}

// Queues tells what the queues have, ordered by virtual host and name. It leaves out those that stand for direct replies.
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

// discard is where a broker logs that was given no logger.
var discard = slog.New(slog.DiscardHandler)
