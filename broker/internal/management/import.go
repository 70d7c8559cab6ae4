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

// importedDefinitions contains the definitions of a cluster or of a virtual host. Unknown fields, which describe the
// origin of the definitions, are ignored. Import decodes the lists element by element, because decoded elements need
// much more memory than encoded elements.
type importedDefinitions struct {
	Users            section[importedUser]      `json:"users"`
	VHosts           section[importedVHost]     `json:"vhosts"`
	Permissions      section[access.Permission] `json:"permissions"`
	Queues           section[importedQueue]     `json:"queues"`
	Exchanges        section[importedExchange]  `json:"exchanges"`
	Bindings         section[importedBinding]   `json:"bindings"`
	TopicPermissions section[unsupportedObject] `json:"topic_permissions"`
	Parameters       section[unsupportedObject] `json:"parameters"`
	GlobalParameters section[unsupportedObject] `json:"global_parameters"`
	Policies         section[unsupportedObject] `json:"policies"`
}

// section is a list of definitions as JSON that is not yet decoded.
type section[T any] struct{ text []byte }

// UnmarshalJSON implements [json.Unmarshaler].
func (s *section[T]) UnmarshalJSON(b []byte) error {
	s.text = bytes.Clone(b)
	if b[0] != '[' && string(b) != "null" {
		var list []json.RawMessage
		return json.Unmarshal(b, &list)
	}
	return nil
}

// each calls the function do for each element, and stops if the function returns an error. The argument of do is valid
// only during the call.
func (s *section[T]) each(name string, do func(*T) error) error {
	if len(s.text) == 0 || s.text[0] != '[' {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(s.text))
	_, _ = d.Token() // skip the bracket; UnmarshalJSON has received valid JSON
	element := new(T)
	for d.More() {
		*element = *new(T)
		if err := d.Decode(element); err != nil {
			if at, ok := err.(*json.UnmarshalTypeError); ok {
				at.Field = strings.TrimSuffix(name+"."+at.Field, ".")
			}
			return wrongDefinitions(err)
		}
		if err := do(element); err != nil {
			return err
		}
	}
	return nil
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

// limits contains the limits of a user or a virtual host. In JSON, they are an object or, in older exports, a list.
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
	Durable *flag `json:"durable"` // nil if the field is missing
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

// unsupportedObject is an object that the broker does not support. The fields identify the object in error messages.
type unsupportedObject struct {
	Name      string `json:"name"`
	VHost     string `json:"vhost"`
	User      string `json:"user"`
	Component string `json:"component"`
}

func (u unsupportedObject) String() string {
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
		return nil, wrongBody(err)
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

// Import adds the objects in a RabbitMQ definitions file to a node. It replaces users and permissions that already
// exist, and updates the descriptions and tags of virtual hosts. It does not change queues, exchanges or bindings that
// already exist. If the definitions contain unsupported objects, such as policies, Import returns an error before it makes
// any changes. If a later step fails, for example because a queue type is not supported, the earlier changes remain.
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

// parseDefinitions decodes a definitions file, which must be a JSON object.
func parseDefinitions(definitions []byte) (*importedDefinitions, error) {
	d := new(importedDefinitions)
	if err := json.Unmarshal(definitions, d); err != nil {
		return nil, wrongDefinitions(err)
	}
	if string(bytes.TrimSpace(definitions)) == "null" {
		return nil, badRequest("failed_to_parse_json")
	}
	return d, nil
}

// wrongDefinitions returns the error response for malformed definitions.
func wrongDefinitions(err error) error {
	if f, ok := err.(*failure); ok {
		return f
	}
	if at, ok := err.(*json.UnmarshalTypeError); ok && at.Field != "" {
		return badRequest(fmt.Sprintf("%s is a %s and should be a %s", at.Field, at.Value, jsonName(at.Type)))
	}
	return badRequest("failed_to_parse_json")
}

// apply adds the definitions to the node or, if into is not nil, only the exchanges, queues and bindings to the virtual
// host into.
func (d *importedDefinitions) apply(n *node.Node, into *vhost.VHost) error {
	if into != nil {
		d.Users, d.VHosts, d.Permissions = section[importedUser]{}, section[importedVHost]{}, section[access.Permission]{}
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

// harmless contains the names of global parameters that only describe a cluster, and that Import can therefore ignore.
var harmless = []string{"cluster_tags", "cluster_name", "internal_cluster_id", "imported_definition_hash_value"}

// check returns an error if the definitions are malformed, contain unsupported objects, or refer to a missing virtual host.
func (d *importedDefinitions) check(n *node.Node, into *vhost.VHost) error {
	for _, part := range []struct {
		name  string
		items *section[unsupportedObject]
	}{
		{"policies", &d.Policies},
		{"parameters", &d.Parameters},
		{"topic_permissions", &d.TopicPermissions},
		{"global_parameters", &d.GlobalParameters},
	} {
		if err := refuseAny(part.name, part.items); err != nil {
			return err
		}
	}
	if err := d.Users.each("users", (*importedUser).check); err != nil {
		return err
	}
	hosts := make(map[string]bool) // names of the virtual hosts that exist or are part of the definitions
	err := d.VHosts.each("vhosts", func(v *importedVHost) error {
		hosts[v.Name] = true
		return v.check()
	})
	if err != nil {
		return err
	}
	for _, v := range n.VHosts() {
		hosts[v.Name()] = true
	}
	return d.checkVHosts(func(name string) error {
		if into != nil || hosts[name] {
			return nil
		}
		return badRequest(fmt.Sprintf("Please create virtual host %q prior to importing definitions.", name))
	})
}

// refuseAny returns an error if there are any items, because they are not supported. It ignores the global parameters
// in harmless.
func refuseAny(name string, items *section[unsupportedObject]) error {
	count, first := 0, unsupportedObject{}
	err := items.each(name, func(u *unsupportedObject) error {
		if name == "global_parameters" && slices.Contains(harmless, u.Name) {
			return nil
		}
		if count++; count == 1 {
			first = *u
		}
		return nil
	})
	if err != nil || count == 0 {
		return err
	}
	return badRequest(fmt.Sprintf("%s are not supported: got %d, the first is %v "+
		"(nothing was imported; remove them from the definitions to import the rest)", name, count, first))
}

func (u *importedUser) check() error {
	if len(u.Limits) > 0 {
		return badRequest("limits of users are not supported: user " + u.Name + " has limits (nothing was imported)")
	}
	if _, err := u.user(u.Name); err != nil {
		return withObject("user", u.Name, err)
	}
	return nil
}

func (v *importedVHost) check() error {
	if len(v.Limits) > 0 {
		return badRequest("limits of virtual hosts are not supported: " + v.Name + " has limits (nothing was imported)")
	}
	if err := v.settings().check(); err != nil {
		return withObject("vhost", v.Name, err)
	}
	return nil
}

// checkVHosts decodes all objects that belong to a virtual host, and calls check with the name of the virtual host
// for each of them.
func (d *importedDefinitions) checkVHosts(check func(name string) error) error {
	for _, step := range []func() error{
		func() error { return d.Queues.each("queues", func(q *importedQueue) error { return check(q.VHost) }) },
		func() error {
			return d.Exchanges.each("exchanges", func(x *importedExchange) error { return check(x.VHost) })
		},
		func() error {
			return d.Bindings.each("bindings", func(b *importedBinding) error { return check(b.VHost) })
		},
		func() error {
			return d.Permissions.each("permissions", func(p *access.Permission) error { return check(p.VHost) })
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// withObject adds to err the name of the object that caused the error.
func withObject(what, name string, err error) error {
	return badRequest(fmt.Sprintf("%s %q: %v", what, name, failureOf(err).reason))
}
