package broker

import (
	"net"
	"net/http"

	"github.com/reprisemq/reprise/broker/internal/management"
)

// Management returns a handler that serves RabbitMQ's management HTTP API under /api and the metrics under /metrics.
// Serve it with net/http:
//
//	go http.Serve(listener, b.Management())
//
// Users log in with their names and passwords. Each user needs a tag such as "management". The users in [Config.Users]
// are administrators. Serve the handler only on loopback or over TLS, because clients send passwords. The user guest
// with its default password can log in only from the same machine, according to the RemoteAddr of the request. A
// request from httptest.NewRequest counts as a request from another machine.
//
// Set a WriteTimeout on the server. The handler processes at most two list requests per user at a time, and a request
// lasts until the client has read the response.
//
// The handler starts no goroutines, and continues to respond after Shutdown.
func (b *Broker) Management() http.Handler { return b.management }

// Metrics returns a handler that serves only the metrics, in the Prometheus format and with RabbitMQ's metric names.
// The handler does not require a password. The metrics contain numbers and, for paths that end in /per-object, the
// names of queues.
func (b *Broker) Metrics() http.Handler { return management.Metrics(b.node) }

// addresses returns the addresses of the listeners.
func (b *Broker) addresses() []net.Addr {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []net.Addr
	for l := range b.listeners {
		all = append(all, l.Addr())
	}
	return all
}

// importDefinitions applies Config.Definitions. It must run before addUsers, so that Config.Users takes precedence.
func (b *Broker) importDefinitions() error {
	if len(b.config.Definitions) == 0 {
		return nil
	}
	return management.Import(b.node, b.config.Definitions, b.config.Logger)
}
