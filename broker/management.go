package broker

import (
	"net"
	"net/http"

	"github.com/reprisemq/reprise/broker/internal/management"
)

// Management returns RabbitMQ's management HTTP API for this broker, below /api, and its metrics below /metrics, to be
// served however the program likes:
//
//	go http.Serve(listener, b.Management())
//
// Users log in with their name and password, and need a tag: those of [Config.Users] are administrators. Serve it on
// loopback, or by TLS. Who is on this machine, where guest has the default password, is told by the RemoteAddr of a request
// (that of httptest.NewRequest is another machine's).
// Give the server a WriteTimeout: two lists of a user are in work at a time, for as long as their clients take to read them.
// It runs nothing of its own, and goes on answering after Shutdown.
func (b *Broker) Management() http.Handler { return b.management }

// Metrics returns the metrics alone, for Prometheus, under the names that RabbitMQ has for them. It asks for no password;
// what it tells are numbers and, where the path ends in /per-object, names of queues.
func (b *Broker) Metrics() http.Handler { return management.Metrics(b.node) }

// addresses returns where the broker listens.
func (b *Broker) addresses() []net.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []net.Addr
	for l := range b.listeners {
		all = append(all, l.Addr())
	}
	return all
}

// importDefinitions does what Config.Definitions says. It comes before the users of the configuration, so that those win.
func (b *Broker) importDefinitions() error {
	if len(b.config.Definitions) == 0 {
		return nil
	}
	return management.Import(b.node, b.config.Definitions)
}
