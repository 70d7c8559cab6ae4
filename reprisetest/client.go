package reprisetest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
)

// DialContext connects to the broker in memory. Use it as reprise.Config.Dial. For the AMQP client, set
// amqp.Config.Dial to:
//
//	func(network, addr string) (net.Conn, error) { return b.DialContext(t.Context(), network, addr) }
//
// If the client reconnects, the test must close it before the test ends.
func (b *Broker) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if b.limitExceeded.Load() {
		select {} // a timer would keep the clock running
	}
	if until := b.refusedUntil(); !until.IsZero() {
		return nil, fmt.Errorf("connection refused (by Broker.Refuse, for another %s)", time.Until(until))
	}
	return b.dial(false)
}

// dial connects in memory. If own is set, faults do not affect the connection.
func (b *Broker) dial(own bool) (net.Conn, error) {
	client, server := pipe(memoryAddr(b.dialled.Add(1)), memoryAddr(0))
	if err := b.inside.Serve(b.wrap(server, own)); err != nil {
		return nil, err
	}
	return client, nil
}

// memoryAddr is the address of one end of an in-memory connection: a number that is unique among the clients of a broker,
// or 0 for the broker.
type memoryAddr uint64

func (memoryAddr) Network() string  { return "pipe" }
func (m memoryAddr) String() string { return fmt.Sprintf("memory:%d", uint64(m)) }

// heartbeat is the heartbeat interval in virtual time. Clients detect the loss of an in-memory connection without
// heartbeats, and each heartbeat costs as much as a small message.
const heartbeat = time.Hour

// Client returns a new client that is connected to the broker, and closes the client when t ends. A nil config or a
// zero field selects a default for tests: Dial connects to the broker, the Logger writes to the log of a failed test,
// and Reconnect has no jitter. In virtual time, the default Heartbeat is one hour, because clients detect the loss of an
// in-memory connection without heartbeats.
func (b *Broker) Client(t TB, config *reprise.Config) *reprise.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), b.config.Timeout)
	defer cancel()
	client, err := reprise.Dial(ctx, b.URL(), b.clientConfig(config, b.DialContext))
	if err != nil {
		t.Fatalf("reprisetest: %v", err)
	}
	b.mu.Lock()
	b.clients = append(b.clients, client)
	b.mu.Unlock()
	t.Cleanup(func() {
		b.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := client.Close(ctx); err != nil {
			t.Errorf("reprisetest: cannot close client: %v", err)
		}
	})
	return client
}

// closeTimeout limits the time to close a client or stop a worker. Close waits for all goroutines of the client, which
// have their own timeouts.
const closeTimeout = time.Minute

func (b *Broker) clientConfig(given *reprise.Config, dial func(context.Context, string, string) (net.Conn, error)) *reprise.Config {
	var c reprise.Config
	if given != nil {
		c = *given
	}
	if c.Dial == nil {
		c.Dial = dial
	}
	if c.Logger == nil {
		c.Logger = b.events.logger(slog.LevelInfo)
	}
	if c.Heartbeat == 0 && b.virtual {
		c.Heartbeat = heartbeat
	}
	if c.Reconnect == nil {
		c.Reconnect = backoff.Exponential{Initial: reprise.DefaultReconnectInitial, Max: reprise.DefaultReconnectMax}
	}
	c.Observer = &observer{broker: b, next: c.Observer}
	return &c
}

// ownClient returns the package's own client, which faults do not affect.
func (b *Broker) ownClient(t TB) *reprise.Client {
	t.Helper()
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if b.own == nil {
		ctx, cancel := context.WithTimeout(context.Background(), b.config.Timeout)
		defer cancel()
		var err error
		b.own, err = reprise.Dial(ctx, b.URL(), b.clientConfig(&reprise.Config{Name: ownUser},
			func(context.Context, string, string) (net.Conn, error) { return b.dial(true) }))
		if err != nil {
			t.Fatalf("reprisetest: cannot dial client of the test: %v", err)
		}
	}
	return b.own
}
