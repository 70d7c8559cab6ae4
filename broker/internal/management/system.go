package management

import (
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

func (h *Handler) system() {
	h.handle("GET /api/overview", anyone, overview)
	h.handle("GET /api/nodes", monitor, func(c *call) (any, error) { return listOf[nodeInfo]{c.describeNode()}, nil })
	h.handle("GET /api/nodes/{node}", monitor, func(c *call) (any, error) {
		if c.PathValue("node") != NodeName {
			return nil, notFound
		}
		return c.describeNode(), nil
	})
	h.handle("GET /api/whoami", anyone, whoami)
	h.handle("GET /api/cluster-name", anyone, func(*call) (any, error) { return nameOnly{NodeName}, nil })
	h.handle("GET /api/version", anyone, func(*call) (any, error) { return Version, nil })
	h.handle("GET /api/extensions", anyone, func(*call) (any, error) { return listOf[extension]{{"dispatcher.js"}}, nil })
	h.handle("GET /api/auth", anyone, func(*call) (any, error) { return authSettings{}, nil })
	h.mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) { h.guardedMetrics(w, r, false) })
	h.mux.HandleFunc("GET /metrics/per-object", func(w http.ResponseWriter, r *http.Request) { h.guardedMetrics(w, r, true) })
}

type nameOnly struct {
	Name string `json:"name"`
}

type extension struct {
	JavaScript string `json:"javascript"`
}

// authSettings tells the user interface how to log in: by name and password. RabbitMQ 4.3 has no such resource any more.
type authSettings struct {
	OAuth bool `json:"oauth_enabled"`
}

type identity struct {
	Name       string   `json:"name"`
	Tags       []string `json:"tags"`
	IsInternal bool     `json:"is_internal_user"`
}

func whoami(c *call) (any, error) {
	return identity{Name: c.user.Name, Tags: tagList(c.user.Tags), IsInternal: true}, nil
}

// tagList never is null in JSON.
func tagList(tags []string) []string { return append([]string{}, tags...) }

// listener is where the node can be reached.
type listener struct {
	Node     string     `json:"node"`
	Protocol string     `json:"protocol"`
	IP       string     `json:"ip_address"`
	Port     int        `json:"port"`
	Options  socketOpts `json:"socket_opts"`
	TLS      bool       `json:"tls"`
}

type socketOpts struct{}

// webContext is where the API itself can be reached.
type webContext struct {
	Description string `json:"description"`
	Path        string `json:"path"`
	IP          string `json:"ip"`
	Port        string `json:"port"`
}

// clusterContext is the same, said of the whole cluster.
type clusterContext struct {
	TLSOptions []string `json:"ssl_opts"`
	Node       string   `json:"node"`
	webContext
}

const apiDescription = "RabbitMQ Management"

// listening returns where the node listens, this API last, as far as the server it runs in tells.
func (c *call) listening() []listener {
	all := []listener{}
	for _, a := range c.h.listeners() {
		all = append(all, newListener("amqp", a))
	}
	if a, ok := c.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		l := newListener("http", a)
		l.TLS = c.TLS != nil
		all = append(all, l)
	}
	return all
}

func newListener(protocol string, a net.Addr) listener {
	host, port := endpointOf(a)
	return listener{Node: NodeName, Protocol: protocol, IP: host, Port: port}
}

// endpointOf takes an address apart; one that is no socket has no port.
func endpointOf(a net.Addr) (host string, port int) {
	return splitAddr(a.String())
}

func splitAddr(addr string) (host string, port int) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return addr, 0
	}
	port, _ = strconv.Atoi(text) // there is none in memory
	return host, port
}

func (c *call) contexts() []webContext {
	all := []webContext{}
	for _, l := range c.listening() {
		if l.Protocol == "http" {
			all = append(all, webContext{Description: apiDescription, Path: "/", IP: l.IP, Port: strconv.Itoa(l.Port)})
		}
	}
	return all
}

// described is an exchange type or a way to log in.
type described struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Enabled     bool   `json:"enabled"`
}

func exchangeTypes() []described {
	var all []described
	for name := range strings.SplitSeq("direct fanout headers topic", " ") {
		all = append(all, described{name, "AMQP " + name + " exchange, as per the AMQP specification", true})
	}
	return all
}

func authMechanisms() []described {
	return []described{
		{"PLAIN", "SASL PLAIN authentication mechanism", true},
		{"AMQPLAIN", "QPid AMQPLAIN mechanism", true},
		{"EXTERNAL", "TLS peer verification-based authentication plugin. Used in combination with the EXTERNAL SASL mechanism.", true},
	}
}

// protocols returns what is spoken, each once.
func (c *call) protocols() []string {
	var all []string
	for _, l := range c.listening() {
		all = append(all, l.Protocol)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
