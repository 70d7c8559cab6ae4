package management

import (
	"cmp"
	"slices"
	"sync"

	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/parameter"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

func (h *Handler) definitions() {
	for _, path := range []string{"definitions", "all-configuration"} {
		h.handle("GET /api/"+path, administrator, func(c *call) (any, error) { return export(c.node), nil })
		h.handle("POST /api/"+path, administrator, func(c *call) (any, error) {
			return postDefinitions(c, func() (*vhost.VHost, error) { return nil, nil })
		})
	}
	h.handle("GET /api/definitions/{vhost}", administrator, func(c *call) (any, error) {
		v, err := c.vhost()
		if err != nil {
			return nil, err
		}
		return exportVHost(c.node, v), nil
	})
	h.handle("POST /api/definitions/{vhost}", administrator, func(c *call) (any, error) {
		return postDefinitions(c, c.vhostToChange)
	})
}

// origin returns the fields that describe the exporting broker and the format of the definitions.
func origin(format, explanation string) fields {
	return fields{
		"rabbit_version": Version, "rabbitmq_version": Version, "product_name": product, "product_version": Version,
		"rabbitmq_definition_format": format, "explanation": explanation,
	}
}

// export returns the body of GET /api/definitions.
func export(n *node.Node) fields {
	vhosts := func(yield func(element) bool) {
		for _, v := range n.VHosts() {
			if !yield(func() fields {
				return fields{"name": v.Name(), "limits": withLimits(n.Parameters.Limits(v.Name())), "metadata": metadata(v)}
			}) {
				return
			}
		}
	}
	return origin("cluster", "Definitions of cluster '"+cmp.Or(n.ClusterName(), NodeName)+"'").with(declared(n.Parameters, n.VHosts()...)).with(fields{
		"original_cluster_name": cmp.Or(n.ClusterName(), NodeName),
		"users":                 list(listUsers(n.Access.Users)),
		"vhosts":                list(vhosts),
		"permissions":           listPermissions(n.Access, anyPermission),
		"topic_permissions":     n.Access.TopicPermissions(anyTopic),
		"global_parameters":     listParameters(n.Parameters, parameter.Key.IsGlobal),
	})
}

// exportVHost returns the body of GET /api/definitions/{vhost}. The exported objects do not name a virtual host, so
// that they can be imported into any virtual host.
func exportVHost(n *node.Node, v *vhost.VHost) fields {
	objects, m := declared(n.Parameters, v), metadata(v)
	for name, all := range objects {
		if all, ok := all.(list); ok {
			objects[name] = all.without("vhost")
		}
	}
	return origin("single_virtual_host", "Definitions of virtual host '"+v.Name()+"'").with(objects).with(fields{
		"original_vhost_name": v.Name(), "description": m["description"], "limits": withLimits(n.Parameters.Limits(v.Name())), "metadata": m,
	})
}

// declared returns the parameters, queues, exchanges and bindings in the given virtual hosts, except exclusive queues and their
// bindings, and predeclared exchanges.
func declared(p *parameter.Store, vhosts ...*vhost.VHost) fields {
	// All lists use one snapshot per virtual host. Otherwise, the export could contain a binding without its queue, and
	// such a binding cannot be imported.
	taken := sync.OnceValue(func() (all []snapshot) {
		for _, v := range vhosts {
			all = append(all, snapshot{v, v.Queues(), v.Exchanges(), v.Bindings()})
		}
		return all
	})
	each := func(objects func(snapshot, func(element) bool)) list {
		return func(yield func(element) bool) {
			more := true
			for _, s := range taken() {
				objects(s, func(e element) bool {
					more = more && yield(e)
					return more
				})
			}
		}
	}
	return fields{
		"queues": each(snapshot.declaredQueues), "exchanges": each(snapshot.declaredExchanges),
		"bindings": each(snapshot.declaredBindings), "policies": listPolicies(false, vhosts...),
		"parameters": concat(listOperatorParameters(vhosts...), listParameters(p, func(k parameter.Key) bool {
			return slices.ContainsFunc(vhosts, func(v *vhost.VHost) bool { return !k.IsGlobal() && k.VHost == v.Name() })
		})),
	}
}

// snapshot is the topology of a virtual host at one point in time.
type snapshot struct {
	vhost     *vhost.VHost
	queues    []*vhost.Queue
	exchanges []vhost.ExchangeInfo
	bindings  []vhost.BindingInfo
}

func (s snapshot) declaredQueues(yield func(element) bool) {
	for _, q := range s.queues {
		if q.Owner == nil && !yield(func() fields { return declaredQueue(s.vhost, q) }) {
			return
		}
	}
}

func (s snapshot) declaredExchanges(yield func(element) bool) {
	for _, x := range s.exchanges {
		if !predeclared(x.Name) && !yield(func() fields { return declaredExchange(s.vhost, x) }) {
			return
		}
	}
}

func (s snapshot) declaredBindings(yield func(element) bool) {
	owned := make(map[string]bool)
	for _, q := range s.queues {
		if q.Owner != nil {
			owned[q.Name()] = true
		}
	}
	for _, b := range s.bindings {
		if (b.ToExchange || !owned[b.Destination]) && !yield(func() fields { return declaredBinding(s.vhost, b) }) {
			return
		}
	}
}

func declaredExchange(v *vhost.VHost, x vhost.ExchangeInfo) fields {
	exchange := describeExchange(v, x)
	delete(exchange, "policy")
	if !x.Internal {
		delete(exchange, "internal")
	}
	return exchange
}

func declaredBinding(v *vhost.VHost, b vhost.BindingInfo) fields {
	binding := describeBinding(v, b)
	delete(binding, "properties_key")
	return binding
}
