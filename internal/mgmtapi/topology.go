package mgmtapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/reprisemq/reprise/topology"
)

// Topology returns the exchanges and bindings of a virtual host, except the default exchange and its bindings. An exchange
// includes the alternate exchange that a policy sets.
func (a API) Topology(ctx context.Context, vhost string) (t topology.Topology, err error) {
	within := "/" + url.PathEscape(vhost)
	var exchanges []struct {
		Name, Type, Policy string
		Internal           bool
		Arguments          map[string]any
	}
	if err := a.Get(ctx, "exchanges"+within+"?columns=name,type,internal,arguments,policy", &exchanges); err != nil {
		return t, err
	}
	var bindings []struct {
		Source      string
		Destination string
		Kind        string `json:"destination_type"`
		Key         string `json:"routing_key"`
		Arguments   map[string]any
	}
	if err := a.Get(ctx, "bindings"+within, &bindings); err != nil {
		return t, err
	}
	alternates := policies{api: a, path: "policies" + within}
	for _, x := range exchanges {
		if x.Name == "" {
			continue
		}
		declared := topology.Exchange{Name: x.Name, Kind: x.Type, Internal: x.Internal, Args: Arguments(x.Arguments)}
		if _, own := declared.Args[alternate]; !own && x.Policy != "" {
			name, err := alternates.of(ctx, x.Policy)
			if err != nil {
				return t, err
			}
			if name != "" {
				declared.Args[alternate] = name
			}
		}
		t.Exchanges = append(t.Exchanges, declared)
	}
	for _, d := range bindings {
		if d.Source == "" { // every queue is bound to the default exchange
			continue
		}
		b := topology.Binding{Exchange: d.Source, RoutingKey: d.Key, Args: Arguments(d.Arguments)}
		if d.Kind == "exchange" {
			b.ToExchange = d.Destination
		} else {
			b.Queue = d.Destination
		}
		t.Bindings = append(t.Bindings, b)
	}
	return t, nil
}

const alternate = "alternate-exchange"

// policies caches the policies of a virtual host. It requests them on first use.
type policies struct {
	api        API
	path       string
	read       bool
	alternates map[string]string // by policy; nil if the user may not read policies
}

// of returns the alternate exchange that a policy sets. If the user may not read policies, of returns a name that no
// exchange has, because the policy may set an alternate exchange.
func (p *policies) of(ctx context.Context, policy string) (string, error) {
	if !p.read {
		var all []struct {
			Name       string
			Definition map[string]any
		}
		err := p.api.Get(ctx, p.path, &all)
		denied, ok := errors.AsType[*StatusError](err)
		if err != nil && !(ok && (denied.Code == http.StatusUnauthorized || denied.Code == http.StatusForbidden)) {
			return "", err
		}
		p.read = true
		if err == nil {
			p.alternates = map[string]string{}
		}
		for _, one := range all {
			p.alternates[one.Name], _ = one.Definition[alternate].(string)
		}
	}
	if p.alternates == nil {
		return fmt.Sprintf("of the policy %s, which the user of the management API may not read", policy), nil
	}
	return p.alternates[policy], nil
}

// Arguments converts a JSON object to a table. Integers become int64.
func Arguments(from map[string]any) topology.Table {
	t := topology.Table{}
	for name, v := range from {
		if n, ok := v.(float64); ok && n == float64(int64(n)) {
			v = int64(n)
		}
		t[name] = v
	}
	return t
}
