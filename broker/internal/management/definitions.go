package management

import (
	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

func (h *Handler) definitions() {
	h.handle("GET /api/definitions", administrator, func(c *call) (any, error) { return export(c.node), nil })
	h.handle("GET /api/definitions/{vhost}", administrator, func(c *call) (any, error) {
		v, err := c.vhost()
		if err != nil {
			return nil, err
		}
		return exportVHost(v), nil
	})
	h.handle("POST /api/definitions", administrator, func(c *call) (any, error) {
		return postDefinitions(c, func() (*vhost.VHost, error) { return nil, nil })
	})
	h.handle("POST /api/definitions/{vhost}", administrator, func(c *call) (any, error) {
		return postDefinitions(c, c.vhostToChange)
	})
}

// origin says where definitions come from.
func origin(format, explanation string) fields {
	return fields{
		"rabbit_version": Version, "rabbitmq_version": Version, "product_name": product, "product_version": Version,
		"rabbitmq_definition_format": format, "explanation": explanation,
	}
}

// export returns GET /api/definitions.
func export(n *node.Node) fields {
	vhosts, permissions := list{}, list{}
	for _, v := range n.VHosts() {
		vhosts = append(vhosts, fields{"name": v.Name(), "limits": fields{}, "metadata": metadata(v)})
	}
	for _, p := range n.Access.Permissions() {
		permissions = append(permissions, describePermission(p))
	}
	return origin("cluster", "Definitions of cluster '"+NodeName+"'").with(declared(n.VHosts()...)).with(fields{
		"original_cluster_name": NodeName,
		"users":                 listUsers(n.Access.Users()),
		"vhosts":                vhosts,
		"permissions":           permissions,
		"topic_permissions":     list{},
		"global_parameters":     list{clusterTags()},
	})
}

// exportVHost returns GET /api/definitions/{vhost}. Its objects name no virtual host, so that they fit any.
func exportVHost(v *vhost.VHost) fields {
	objects, m := declared(v), metadata(v)
	for _, all := range objects {
		for _, object := range all.(list) {
			delete(object, "vhost")
		}
	}
	return origin("single_virtual_host", "Definitions of virtual host '"+v.Name()+"'").with(objects).with(fields{
		"original_vhost_name": v.Name(), "description": m["description"], "limits": fields{}, "metadata": m,
	})
}

// declared returns the objects of virtual hosts that were declared, and do not belong to one connection.
func declared(vhosts ...*vhost.VHost) fields {
	queues, exchanges, bindings := list{}, list{}, list{}
	for _, v := range vhosts {
		owned := make(map[string]bool)
		for _, q := range v.Queues() {
			if q.Owner != nil {
				owned[q.Name()] = true
				continue
			}
			queues = append(queues, declaredQueue(v, q))
		}
		for _, x := range v.Exchanges() {
			if predeclared(x.Name) {
				continue
			}
			exchange := describeExchange(v, x)
			if !x.Internal {
				delete(exchange, "internal")
			}
			exchanges = append(exchanges, exchange)
		}
		for _, b := range v.Bindings() {
			if b.ToExchange || !owned[b.Destination] {
				binding := describeBinding(v, b)
				delete(binding, "properties_key")
				bindings = append(bindings, binding)
			}
		}
	}
	return fields{"queues": queues, "exchanges": exchanges, "bindings": bindings, "parameters": list{}, "policies": list{}}
}
