package mgmtapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/reprisemq/reprise/topology"
)

// ErrIncomplete is returned together with a topology that lacks objects, because the response does not describe them in
// the expected form. The topology can be displayed, but does not show the destinations of a message.
var ErrIncomplete = errors.New("the management API describes exchanges or bindings in an unknown form")

// Topology returns the exchanges and bindings of the virtual host, except the default exchange and its bindings. An exchange
// includes the alternate exchange that a policy sets.
func (a API) Topology(ctx context.Context) (t topology.Topology, err error) {
	within := a.Within()
	exchanges, complete, err := list[struct {
		Name, Type, Policy Field[string]
		Internal           Field[bool]
		Arguments          arguments
	}](ctx, a, "exchanges"+within+"?columns=name,type,internal,arguments,policy")
	if err != nil {
		return t, err
	}
	bindings, allBindings, err := list[struct {
		Source      Field[string]
		Destination Field[string]
		Kind        Field[string] `json:"destination_type"`
		Key         Field[string] `json:"routing_key"`
		Arguments   arguments
	}](ctx, a, "bindings"+within)
	if err != nil {
		return t, err
	}
	complete = complete && allBindings
	alternates := policies{api: a, path: "policies" + within}
	for _, x := range exchanges {
		if x.Name.Known && x.Name.Value == "" {
			continue
		}
		if !x.Name.Known || !x.Type.Known || x.Policy.Malformed || x.Internal.Malformed || x.Arguments.Malformed {
			complete = false
			continue
		}
		declared := topology.Exchange{Name: x.Name.Value, Kind: x.Type.Value, Internal: x.Internal.Value, Args: table(x.Arguments)}
		if _, own := declared.Args[alternate]; !own && x.Policy.Value != "" {
			name, err := alternates.of(ctx, x.Policy.Value)
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
		if d.Source.Known && d.Source.Value == "" { // every queue is bound to the default exchange
			continue
		}
		if !d.Source.Known || !d.Destination.Known || d.Kind.Malformed || d.Key.Malformed || d.Arguments.Malformed {
			complete = false
			continue
		}
		b := topology.Binding{Exchange: d.Source.Value, RoutingKey: d.Key.Value, Args: table(d.Arguments)}
		if d.Kind.Value == "exchange" {
			b.ToExchange = d.Destination.Value
		} else {
			b.Queue = d.Destination.Value
		}
		t.Bindings = append(t.Bindings, b)
	}
	if !complete {
		return t, ErrIncomplete
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

// of returns the alternate exchange that a policy sets. If it is unknown, for example because the user may not read
// policies, of returns a name that no exchange has.
func (p *policies) of(ctx context.Context, policy string) (string, error) {
	if !p.read {
		all, _, err := list[struct {
			Name       Field[string]
			Definition arguments
		}](ctx, p.api, p.path)
		denied, ok := errors.AsType[*StatusError](err)
		if err != nil && !(ok && (denied.Code == http.StatusUnauthorized || denied.Code == http.StatusForbidden)) {
			return "", err
		}
		p.read = true
		if err == nil {
			p.alternates = map[string]string{}
		}
		for _, one := range all {
			set := one.Definition.Value[alternate]
			if name, ok := set.Value.(string); (ok || !set.Malformed && !set.Known) && !one.Definition.Malformed {
				p.alternates[one.Name.Value] = name
			}
		}
	}
	name, known := p.alternates[policy]
	if !known {
		return fmt.Sprintf("of the policy %s, which the management API does not show", policy), nil
	}
	return name, nil
}
