package management

import (
	"cmp"
	"net"
	"net/http"
	"slices"
	"strconv"

	"github.com/reprisemq/reprise/broker/internal/access"
	routing "github.com/reprisemq/reprise/broker/internal/route"
	"github.com/reprisemq/reprise/broker/internal/stats"
)

func (h *Handler) system() {
	h.handle("GET /api/overview", anyone, overview)
	h.handle("GET /api/nodes", monitor, func(c *call) (any, error) { return []fields{c.describeNode()}, nil })
	ofNode := func(path string, may privilege, describe func(*call) any) {
		h.handle("GET /api/"+path, may, func(c *call) (any, error) {
			if c.PathValue("node") != NodeName {
				return nil, notFound
			}
			return describe(c), nil
		})
	}
	ofNode("nodes/{node}", monitor, func(c *call) any {
		if c.URL.Query().Get("memory") == "true" {
			return c.describeNode().with(fields{"memory": c.describeMemory()})
		}
		return c.describeNode()
	})
	ofNode("healthchecks/node/{node}", anyone, func(*call) any { return healthy() })
	ofNode("nodes/{node}/memory", monitor, func(c *call) any { return fields{"memory": c.describeMemory()} })
	ofNode("nodes/{node}/memory/relative", monitor, func(c *call) any { return fields{"memory": relative(c.describeMemory())} })
	ofNode("auth/attempts/{node}", monitor, func(c *call) any { return c.attempts() })
	ofNode("auth/attempts/{node}/source", monitor, func(*call) any { return []fields{} }) // RabbitMQ counts sources only on request
	h.handle("GET /api/auth/hash_password/{password}", anyone, func(c *call) (any, error) {
		return fields{"ok": access.HashPassword(c.PathValue("password")).String()}, nil
	})
	h.handle("GET /api/queues/detailed", anyone, listDetailedQueues)
	h.handle("PUT /api/cluster-name", administrator, putClusterName)
	h.handle("GET /api/whoami", anyone, whoami)
	h.handle("GET /api/cluster-name", anyone, func(c *call) (any, error) { return fields{"name": c.clusterName()}, nil })
	h.handle("GET /api/version", anyone, func(*call) (any, error) { return Version, nil })
	for _, path := range []string{"feature-flags", "deprecated-features", "deprecated-features/used"} {
		h.handle("GET /api/"+path, administrator, func(*call) (any, error) { return []fields{}, nil })
	}
	h.handle("GET /api/extensions", anyone, func(*call) (any, error) { return []fields{{"javascript": "dispatcher.js"}}, nil })
	// The user interface requests this resource to learn that users log in with a name and a password. RabbitMQ 4.3 no
	// longer provides it.
	h.handle("GET /api/auth", anyone, func(*call) (any, error) { return fields{"oauth_enabled": false}, nil })
	h.handle("GET /metrics", monitor, func(c *call) (any, error) { return scrape{c.node, false}, nil })
	h.handle("GET /metrics/per-object", monitor, func(c *call) (any, error) { return scrape{c.node, true}, nil })
}

// attempts returns the numbers of logins by protocol.
func (c *call) attempts() []fields {
	all := []fields{}
	for _, counted := range []struct {
		protocol string
		logins   *stats.Logins
	}{{"amqp091", &c.node.Stats.AMQPLogins}, {"http", &c.node.Stats.HTTPLogins}} {
		good, bad := counted.logins.Succeeded.Load(), counted.logins.Failed.Load()
		all = append(all, fields{
			"protocol": counted.protocol, "auth_attempts": good + bad, "auth_attempts_succeeded": good, "auth_attempts_failed": bad,
		})
	}
	return all
}

func (c *call) clusterName() string { return cmp.Or(c.node.ClusterName(), NodeName) }

func putClusterName(c *call) (any, error) {
	var s struct {
		Name string `json:"name"`
	}
	if err := c.decode(&s, "name"); err != nil {
		return nil, err
	}
	return done{}, c.node.SetClusterName(s.Name)
}

func whoami(c *call) (any, error) {
	return fields{"name": c.user.Name, "tags": tagList(c.user.Tags), "is_internal_user": true}, nil
}

// tagList returns tags as a non-nil slice, so that the JSON value is a list and not null.
func tagList(tags []string) []string { return append([]string{}, tags...) }

// listener is an address on which the node listens.
type listener struct {
	protocol string
	ip       string
	port     int
	tls      bool
}

// listening returns the listeners of the node. If the HTTP server reports the address of the connection, the last
// listener is the listener of this API.
func (c *call) listening() []listener {
	var all []listener
	for _, a := range c.h.listeners() {
		all = append(all, newListener("amqp", a))
	}
	if a, ok := c.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		l := newListener("http", a)
		l.tls = c.TLS != nil
		all = append(all, l)
	}
	return all
}

func newListener(protocol string, a net.Addr) listener {
	ip, port := splitAddr(a.String())
	return listener{protocol: protocol, ip: ip, port: port}
}

// splitAddr splits an address into host and port. If the address does not have a port, the port is 0.
func splitAddr(addr string) (host string, port int) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return addr, 0
	}
	port, _ = strconv.Atoi(text) // 0 if the port is not a number
	return host, port
}

// contexts returns the listeners of the API, which RabbitMQ calls contexts.
func (c *call) contexts() []fields {
	all := []fields{}
	for _, l := range c.listening() {
		if l.protocol == "http" {
			all = append(all, fields{"description": "RabbitMQ Management", "path": "/", "ip": l.ip, "port": strconv.Itoa(l.port)})
		}
	}
	return all
}

func exchangeTypes() []fields {
	var all []fields
	for _, kind := range routing.Kinds() {
		name := string(kind)
		all = append(all, described(name, cmp.Or(pluginTypes[kind], "AMQP "+name+" exchange, as per the AMQP specification")))
	}
	return all
}

// pluginTypes describes the exchange types that AMQP does not specify.
var pluginTypes = map[routing.Kind]string{
	routing.ConsistentHash: "Consistent Hashing Exchange",
	routing.Delayed:        "Delayed Message Exchange.",
	routing.LocalRandom:    "Picks one random local binding (queue) to route via (to).",
	routing.ModulusHash:    "Modulus Hashing Exchange",
	routing.Random:         "Randomly picks a binding (queue) to route via (to).",
	routing.RecentHistory:  "Recent History Exchange.",
}

func authMechanisms() []fields {
	return []fields{
		described("PLAIN", "SASL PLAIN authentication mechanism"),
		described("AMQPLAIN", "QPid AMQPLAIN mechanism"),
		described("EXTERNAL", "TLS peer verification-based authentication plugin. Used in combination with the EXTERNAL SASL mechanism."),
	}
}

func described(name, description string) fields {
	return fields{"name": name, "description": description, "enabled": true}
}

// protocols returns the names of the protocols of all listeners, without duplicates.
func (c *call) protocols() []string {
	var all []string
	for _, l := range c.listening() {
		all = append(all, l.protocol)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
