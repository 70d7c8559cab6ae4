package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/reprisemq/reprise/internal/mgmtapi"
)

// table is an object of JSON with unknown keys. RabbitMQ encodes an object without keys as an empty list.
type table = mgmtapi.Field[map[string]any]

// The elements of the lists of the management API and of definitions.
type (
	queueJSON struct {
		Name       string   `json:"name"`
		VHost      string   `json:"vhost"`
		Type       string   `json:"type"`
		Durable    bool     `json:"durable"`
		AutoDelete bool     `json:"auto_delete"`
		Exclusive  bool     `json:"exclusive"`
		Args       table    `json:"arguments"`
		Policy     *string  `json:"policy"`
		Effective  table    `json:"effective_policy_definition"`
		Ready      int64    `json:"messages_ready"`
		Messages   int64    `json:"messages"`
		Bytes      int64    `json:"message_bytes"`
		Consumers  *int64   `json:"consumers"`
		Members    []string `json:"members"`
		Online     []string `json:"online"`

		Stats mgmtapi.Field[struct {
			Acked        int64 `json:"ack"`
			GetNoAck     int64 `json:"get_no_ack"`
			DeliverNoAck int64 `json:"deliver_no_ack"`
		}] `json:"message_stats"`
	}
	exchangeJSON struct {
		Name       string `json:"name"`
		VHost      string `json:"vhost"`
		Type       string `json:"type"`
		Durable    bool   `json:"durable"`
		AutoDelete bool   `json:"auto_delete"`
		Internal   bool   `json:"internal"`
		Args       table  `json:"arguments"`
	}
	bindingJSON struct {
		VHost       string `json:"vhost"`
		Source      string `json:"source"`
		Destination string `json:"destination"`
		Kind        string `json:"destination_type"`
		Key         string `json:"routing_key"`
		Args        table  `json:"arguments"`
	}
	policyJSON struct {
		Name       string  `json:"name"`
		VHost      string  `json:"vhost"`
		Pattern    string  `json:"pattern"`
		ApplyTo    string  `json:"apply-to"`
		Priority   float64 `json:"priority"`
		Definition table   `json:"definition"`
	}
	userJSON struct {
		Name string `json:"name"`
		Tags any    `json:"tags"` // a list or, in old definitions, a text
	}
	consumerJSON struct {
		Queue struct {
			Name  string `json:"name"`
			VHost string `json:"vhost"`
		} `json:"queue"`
		Ack      bool  `json:"ack_required"`
		Prefetch int64 `json:"prefetch_count"`
		Args     table `json:"arguments"`
	}
	channelJSON struct {
		Name   string `json:"name"`
		VHost  string `json:"vhost"`
		User   string `json:"user"`
		Global int64  `json:"global_prefetch_count"`
	}
	connectionJSON struct {
		Name  string `json:"name"`
		User  string `json:"user"`
		Host  string `json:"peer_host"`
		State string `json:"state"`
	}
	nodeJSON struct {
		Name   string `json:"name"`
		Memory bool   `json:"mem_alarm"`
		Disk   bool   `json:"disk_free_alarm"`
	}
	deprecatedJSON struct {
		Name string `json:"name"`
	}
)

// vhostJSON is a virtual host. Definitions contain the default type only in the metadata.
type vhostJSON struct {
	Name     string `json:"name"`
	Type     string `json:"default_queue_type"`
	Metadata struct {
		Type string `json:"default_queue_type"`
	} `json:"metadata"`
}

// definitions are the lists that the API and a file of definitions have in common.
type definitions struct {
	Queues     []queueJSON    `json:"queues"`
	Exchanges  []exchangeJSON `json:"exchanges"`
	Bindings   []bindingJSON  `json:"bindings"`
	VHosts     []vhostJSON    `json:"vhosts"`
	Policies   []policyJSON   `json:"policies"`
	Parameters []struct {
		Component string          `json:"component"`
		Name      string          `json:"name"`
		VHost     string          `json:"vhost"`
		Value     json.RawMessage `json:"value"`
	} `json:"parameters"`
	Users   []userJSON `json:"users"`
	Version string     `json:"rabbitmq_version"`
	Old     string     `json:"rabbit_version"`
}

// Parse reads a file of definitions, as rabbitmqctl export_definitions and GET /api/definitions write it. If vhost is not "",
// the result contains only that virtual host. Definitions of one virtual host do not contain its name: their objects belong to
// vhost or "/".
func Parse(text []byte, vhost string) (*Broker, error) {
	var d definitions
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("cannot read the definitions: %w", err)
	}
	if d.Queues == nil && d.Exchanges == nil && d.Bindings == nil {
		return nil, errors.New("cannot read the definitions: neither queues, exchanges nor bindings found (export them with rabbitmqctl export_definitions FILE)")
	}
	b := &Broker{Version: cmp.Or(d.Version, d.Old), own: cmp.Or(vhost, "/"), has: map[string]bool{"users": d.Users != nil, patterns: true}}
	for _, p := range d.Parameters {
		if p.Component != "operator_policy" {
			continue
		}
		operator := policyJSON{Name: p.Name, VHost: p.VHost}
		if err := json.Unmarshal(p.Value, &operator); err != nil {
			return nil, fmt.Errorf("cannot read operator policy %q: %w", p.Name, err)
		}
		b.addPolicies([]policyJSON{operator}, true)
	}
	b.addPolicies(d.Policies, false)
	b.addTopology(d.Queues, d.Exchanges, d.Bindings)
	b.addUsers(d.Users)
	b.addVHosts(d.VHosts)
	if vhost != "" {
		b.keep(vhost)
	}
	if err := b.compilePatterns(); err != nil {
		return nil, err
	}
	b.applyToQueues()
	b.applyToExchanges()
	b.index()
	return b, nil
}

// keep removes all other virtual hosts.
func (b *Broker) keep(vhost string) {
	b.Queues = slices.DeleteFunc(b.Queues, func(q Queue) bool { return q.VHost != vhost })
	b.Exchanges = slices.DeleteFunc(b.Exchanges, func(x Exchange) bool { return x.VHost != vhost })
	b.Bindings = slices.DeleteFunc(b.Bindings, func(e Binding) bool { return e.VHost != vhost })
	b.Policies = slices.DeleteFunc(b.Policies, func(p Policy) bool { return p.VHost != vhost })
	b.Consumers = slices.DeleteFunc(b.Consumers, func(c Consumer) bool { return c.VHost != vhost })
	b.Channels = slices.DeleteFunc(b.Channels, func(c Channel) bool { return c.VHost != vhost })
}

func (b *Broker) addPolicies(all []policyJSON, operator bool) {
	for _, p := range all {
		b.Policies = append(b.Policies, Policy{
			Name: p.Name, VHost: cmp.Or(p.VHost, b.own), Pattern: p.Pattern, ApplyTo: p.ApplyTo, Priority: p.Priority,
			Definition: p.Definition.Value, Operator: operator,
		})
	}
}

func (b *Broker) addTopology(queues []queueJSON, exchanges []exchangeJSON, bindings []bindingJSON) {
	for _, q := range queues {
		one := Queue{
			Name: q.Name, VHost: cmp.Or(q.VHost, b.own), Durable: q.Durable, AutoDelete: q.AutoDelete, Exclusive: q.Exclusive, Args: q.Args.Value,
			Policy: q.Effective.Value, Ready: q.Ready, Messages: q.Messages, Bytes: q.Bytes,
			Members: len(q.Members), Online: len(q.Online),
		}
		declared, _ := one.Args["x-queue-type"].(string)
		one.Kind = cmp.Or(q.Type, declared, "classic")
		one.Taken = q.Stats.Value.Acked + q.Stats.Value.GetNoAck + q.Stats.Value.DeliverNoAck
		if q.Consumers != nil {
			one.Consumers, one.Counted = *q.Consumers, true
		}
		if q.Policy != nil {
			one.PolicyName = *q.Policy
		}
		b.Queues = append(b.Queues, one)
	}
	for _, x := range exchanges {
		one := Exchange{Name: x.Name, VHost: cmp.Or(x.VHost, b.own), Kind: x.Type, Durable: x.Durable, AutoDelete: x.AutoDelete, Internal: x.Internal, Args: x.Args.Value}
		one.Alternate, _ = one.Args["alternate-exchange"].(string)
		b.Exchanges = append(b.Exchanges, one)
	}
	for _, e := range bindings {
		b.Bindings = append(b.Bindings, Binding{cmp.Or(e.VHost, b.own), e.Source, e.Destination, e.Kind, e.Key, e.Args.Value})
	}
}

func (b *Broker) addVHosts(all []vhostJSON) {
	for _, v := range all {
		kind := cmp.Or(v.Type, v.Metadata.Type)
		if kind == "undefined" { // RabbitMQ 3
			kind = "classic"
		}
		b.VHosts = append(b.VHosts, VHost{v.Name, kind})
	}
}

func (b *Broker) addUsers(all []userJSON) {
	for _, u := range all {
		b.Users = append(b.Users, User{Name: u.Name, Tags: tags(u.Tags)})
	}
}

func tags(v any) (all []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, e := range v {
			if s, ok := e.(string); ok {
				all = append(all, s)
			}
		}
	}
	return all
}

// Read reads a broker through its management API. If vhost is not "", it reads only that virtual host. Lists that the user may
// not read are missing, so the rules that need them are skipped; exchanges, queues, bindings and policies are required.
func Read(ctx context.Context, api mgmtapi.API, vhost string) (*Broker, error) {
	b := &Broker{own: cmp.Or(vhost, "/"), has: map[string]bool{}}
	in := ""
	if vhost != "" {
		api.VHost = vhost
		in = api.Within()
	}
	var overview struct {
		Version   string                    `json:"rabbitmq_version"`
		Listeners mgmtapi.Field[[]Listener] `json:"listeners"`
	}
	if err := api.Get(ctx, "overview", &overview); err != nil {
		return nil, err
	}
	b.Version, b.Listeners = overview.Version, overview.Listeners.Value
	var d definitions
	var operators []policyJSON
	for path, into := range map[string]any{
		"queues" + in: &d.Queues, "exchanges" + in: &d.Exchanges, "bindings" + in: &d.Bindings,
		"policies" + in: &d.Policies, "operator-policies" + in: &operators,
	} {
		if err := api.Get(ctx, path, into); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", path, err)
		}
	}
	b.addTopology(d.Queues, d.Exchanges, d.Bindings)
	b.addPolicies(d.Policies, false)
	b.addPolicies(operators, true)
	// A pattern that only PCRE understands leaves the policies of exchanges and of new queues unknown.
	if b.has[patterns] = b.compilePatterns() == nil; b.has[patterns] {
		b.applyToQueues()
		b.applyToExchanges()
	}
	if err := b.readRest(ctx, api, vhost, in); err != nil {
		return nil, err
	}
	b.index()
	return b, nil
}

// readRest reads the lists that only some users may read.
func (b *Broker) readRest(ctx context.Context, api mgmtapi.API, vhost, in string) error {
	var (
		users       []userJSON
		consumers   []consumerJSON
		channels    []channelJSON
		connections []connectionJSON
		nodes       []nodeJSON
		deprecated  []deprecatedJSON
		vhosts      mgmtapi.Field[[]vhostJSON]
		one         mgmtapi.Field[vhostJSON]
	)
	virtual := any(&vhosts)
	if vhost != "" {
		virtual = &one
	}
	for path, into := range map[string]any{
		"users": &users, "consumers": &consumers, "channels": &channels, "connections": &connections, "nodes": &nodes,
		"deprecated-features/used": &deprecated, "vhosts" + in: virtual,
	} {
		err := api.Get(ctx, path, into)
		if status, ok := errors.AsType[*mgmtapi.StatusError](err); ok && status.Code != http.StatusInternalServerError {
			continue // not permitted, or an old version
		}
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", path, err)
		}
		b.has[path] = true
	}
	b.has[Live] = true
	b.addUsers(users)
	b.addVHosts(append(vhosts.Value, one.Value))
	for _, c := range consumers {
		priority, _ := mgmtapi.Integer(c.Args.Value["x-priority"])
		b.Consumers = append(b.Consumers, Consumer{c.Queue.VHost, c.Queue.Name, c.Ack, c.Prefetch, priority})
	}
	for _, c := range channels {
		b.Channels = append(b.Channels, Channel{c.Name, c.VHost, c.User, c.Global})
	}
	for _, c := range connections {
		b.Connections = append(b.Connections, Connection(c))
	}
	b.Nodes = len(nodes)
	for _, n := range nodes {
		if n.Memory {
			b.Alarms = append(b.Alarms, "memory on "+n.Name)
		}
		if n.Disk {
			b.Alarms = append(b.Alarms, "disk on "+n.Name)
		}
	}
	for _, f := range deprecated {
		b.Deprecated = append(b.Deprecated, f.Name)
	}
	if vhost != "" {
		b.keep(vhost)
	}
	return nil
}
