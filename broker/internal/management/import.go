package management

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// imported is what definitions may hold, of a cluster or of one virtual host. What it does not name says where they come
// from, and is passed over.
type imported struct {
	Users            []importedUser      `json:"users"`
	VHosts           []importedVHost     `json:"vhosts"`
	Permissions      []access.Permission `json:"permissions"`
	Queues           []importedQueue     `json:"queues"`
	Exchanges        []importedExchange  `json:"exchanges"`
	Bindings         []importedBinding   `json:"bindings"`
	TopicPermissions []unsupported       `json:"topic_permissions"`
	Parameters       []unsupported       `json:"parameters"`
	GlobalParameters []unsupported       `json:"global_parameters"`
	Policies         []unsupported       `json:"policies"`
}

type importedUser struct {
	Name string `json:"name"`
	userSettings
	Limits limits `json:"limits"`
}

type importedVHost struct {
	Name string `json:"name"`
	vhostSettings
	Limits   limits         `json:"limits"`
	Metadata *vhostSettings `json:"metadata"`
}

// limits are an object or, in older exports, a list.
type limits []json.RawMessage

// UnmarshalJSON implements [json.Unmarshaler].
func (l *limits) UnmarshalJSON(b []byte) error {
	if b = bytes.TrimSpace(b); len(b) > 2 && string(b) != "null" {
		*l = limits{b}
	}
	return nil
}

type importedQueue struct {
	Name  string `json:"name"`
	VHost string `json:"vhost"`
	Type  string `json:"type"`
	queueSettings
	Durable *flag `json:"durable"` // which by itself would not be there
}

type importedExchange struct {
	Name  string `json:"name"`
	VHost string `json:"vhost"`
	exchangeSettings
	Durable *flag `json:"durable"`
}

type importedBinding struct {
	Source          string    `json:"source"`
	VHost           string    `json:"vhost"`
	Destination     string    `json:"destination"`
	DestinationType string    `json:"destination_type"`
	RoutingKey      string    `json:"routing_key"`
	Arguments       arguments `json:"arguments"`
}

// unsupported is something that cannot be had here, and how to name it.
type unsupported struct {
	Name      string `json:"name"`
	VHost     string `json:"vhost"`
	User      string `json:"user"`
	Component string `json:"component"`
}

func (u unsupported) String() string {
	var parts []string
	for _, part := range []struct{ name, value string }{
		{"component", u.Component}, {"name", u.Name}, {"user", u.User}, {"vhost", u.VHost},
	} {
		if part.value != "" {
			parts = append(parts, part.name+" "+part.value)
		}
	}
	return strings.Join(parts, ", ")
}

func postDefinitions(c *call, where func() (*vhost.VHost, error)) (any, error) {
	body, err := io.ReadAll(c.Body)
	if err != nil {
		return nil, badRequest("Exceeded HTTP request body size limit")
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	d, err := parseDefinitions(body)
	if err != nil {
		return nil, err
	}
	into, err := where()
	if err != nil {
		return nil, err
	}
	return done{}, d.apply(c.node, into)
}

// Import adds what RabbitMQ's definitions file describes to a node. What exists is left as it is, but for users and
// permissions, which are replaced. What cannot be had here is refused before anything is changed; after that, what went
// before an error stays.
func Import(n *node.Node, definitions []byte) error {
	d, err := parseDefinitions(definitions)
	if err == nil {
		err = d.apply(n, nil)
	}
	if f, ok := err.(*failure); ok {
		return fmt.Errorf("definitions: %v", f.reason)
	}
	if err != nil {
		return fmt.Errorf("definitions: %w", err)
	}
	return nil
}

// parseDefinitions reads definitions, which must be an object.
func parseDefinitions(definitions []byte) (*imported, error) {
	d := new(imported)
	if err := json.Unmarshal(definitions, d); err != nil {
		if f, ok := err.(*failure); ok {
			return nil, f
		}
		if at, ok := err.(*json.UnmarshalTypeError); ok && at.Field != "" {
			return nil, badRequest(fmt.Sprintf("%s is a %s and should be a %s", at.Field, at.Value, jsonName(at.Type)))
		}
		return nil, badRequest("failed_to_parse_json")
	}
	if string(bytes.TrimSpace(definitions)) == "null" {
		return nil, badRequest("failed_to_parse_json")
	}
	return d, nil
}

// apply imports definitions: those of a cluster or, into a virtual host, one's own, whatever its name was.
func (d *imported) apply(n *node.Node, into *vhost.VHost) error {
	if into != nil {
		d.Users, d.VHosts, d.Permissions = nil, nil, nil
	}
	if err := d.check(n, into); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return d.addUsers(n) },
		func() error { return d.addVHosts(n) },
		func() error { return d.addPermissions(n) },
		func() error { return d.addExchanges(n, into) },
		func() error { return d.addQueues(n, into) },
		func() error { return d.addBindings(n, into) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// harmless global parameters say who a cluster is, and nothing of what it does.
var harmless = []string{"cluster_tags", "cluster_name", "internal_cluster_id", "imported_definition_hash_value"}

// check finds what cannot be had here, and virtual hosts that nobody made.
func (d *imported) check(n *node.Node, into *vhost.VHost) error {
	for _, part := range []struct {
		name  string
		items []unsupported
	}{
		{"policies", d.Policies},
		{"parameters", d.Parameters},
		{"topic_permissions", d.TopicPermissions},
		{"global_parameters", slices.DeleteFunc(slices.Clone(d.GlobalParameters), func(u unsupported) bool {
			return slices.Contains(harmless, u.Name)
		})},
	} {
		if len(part.items) > 0 {
			return badRequest(fmt.Sprintf("%s are not supported, and there are %d of them (the first: %v): "+
				"nothing was imported; take them out of the definitions to import the rest", part.name, len(part.items), part.items[0]))
		}
	}
	for _, u := range d.Users {
		if len(u.Limits) > 0 {
			return badRequest("limits of users are not supported, and user " + u.Name + " has some: nothing was imported")
		}
		if _, err := u.user(u.Name); err != nil {
			return of("user", u.Name, err)
		}
	}
	for _, v := range d.VHosts {
		if len(v.Limits) > 0 {
			return badRequest("limits of virtual hosts are not supported, and " + v.Name + " has some: nothing was imported")
		}
		if err := v.settings().check(); err != nil {
			return of("vhost", v.Name, err)
		}
	}
	return d.checkVHosts(n, into)
}

func (d *imported) checkVHosts(n *node.Node, into *vhost.VHost) error {
	if into != nil {
		return nil
	}
	var names []string
	for _, q := range d.Queues {
		names = append(names, q.VHost)
	}
	for _, x := range d.Exchanges {
		names = append(names, x.VHost)
	}
	for _, b := range d.Bindings {
		names = append(names, b.VHost)
	}
	for _, p := range d.Permissions {
		names = append(names, p.VHost)
	}
	for _, name := range names {
		defined := slices.ContainsFunc(d.VHosts, func(v importedVHost) bool { return v.Name == name })
		if !defined && n.VHost(name) == nil {
			return badRequest(fmt.Sprintf("Please create virtual host %q prior to importing definitions.", name))
		}
	}
	return nil
}

// of says what an error is about.
func of(what, name string, err error) error {
	return badRequest(fmt.Sprintf("%s %q: %v", what, name, failureOf(err).reason))
}
