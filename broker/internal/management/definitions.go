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
type origin struct {
	RabbitVersion   string `json:"rabbit_version"`
	RabbitMQVersion string `json:"rabbitmq_version"`
	ProductName     string `json:"product_name"`
	ProductVersion  string `json:"product_version"`
	Format          string `json:"rabbitmq_definition_format"`
	Explanation     string `json:"explanation"`
}

func newOrigin(format, explanation string) origin {
	return origin{Version, Version, product, Version, format, explanation}
}

// topologyDefinitions are the objects of virtual hosts. Without names of virtual hosts they fit any.
type topologyDefinitions struct {
	Parameters []struct{}           `json:"parameters"`
	Policies   []struct{}           `json:"policies"`
	Queues     []queueDefinition    `json:"queues"`
	Exchanges  []exchangeDefinition `json:"exchanges"`
	Bindings   []bindingDefinition  `json:"bindings"`
}

type queueDefinition struct {
	Name       string    `json:"name"`
	VHost      string    `json:"vhost,omitempty"`
	Type       string    `json:"type"`
	Durable    bool      `json:"durable"`
	AutoDelete bool      `json:"auto_delete"`
	Arguments  arguments `json:"arguments"`
}

type exchangeDefinition struct {
	Name       string    `json:"name"`
	VHost      string    `json:"vhost,omitempty"`
	Type       string    `json:"type"`
	Durable    bool      `json:"durable"`
	AutoDelete bool      `json:"auto_delete"`
	Internal   bool      `json:"internal,omitempty"`
	Arguments  arguments `json:"arguments"`
}

type bindingDefinition struct {
	Source          string    `json:"source"`
	VHost           string    `json:"vhost,omitempty"`
	Destination     string    `json:"destination"`
	DestinationType string    `json:"destination_type"`
	RoutingKey      string    `json:"routing_key"`
	Arguments       arguments `json:"arguments"`
}

type vhostDefinition struct {
	Name     string        `json:"name"`
	Limits   struct{}      `json:"limits"`
	Metadata vhostMetadata `json:"metadata"`
}

// clusterDefinitions is GET /api/definitions.
type clusterDefinitions struct {
	origin
	OriginalCluster  string            `json:"original_cluster_name"`
	Users            []userInfo        `json:"users"`
	VHosts           []vhostDefinition `json:"vhosts"`
	Permissions      []permissionInfo  `json:"permissions"`
	TopicPermissions []struct{}        `json:"topic_permissions"`
	GlobalParameters []clusterTags     `json:"global_parameters"`
	topologyDefinitions
}

// vhostDefinitions is GET /api/definitions/{vhost}.
type vhostDefinitions struct {
	origin
	OriginalVHost string        `json:"original_vhost_name"`
	Description   string        `json:"description"`
	Limits        struct{}      `json:"limits"`
	Metadata      vhostMetadata `json:"metadata"`
	topologyDefinitions
}

func noDefinitions() topologyDefinitions {
	return topologyDefinitions{
		[]struct{}{}, []struct{}{}, []queueDefinition{}, []exchangeDefinition{}, []bindingDefinition{},
	}
}

func export(n *node.Node) clusterDefinitions {
	d := clusterDefinitions{
		origin:           newOrigin("cluster", "Definitions of cluster '"+NodeName+"'"),
		OriginalCluster:  NodeName,
		Users:            listUsers(n.Access.Users()),
		VHosts:           []vhostDefinition{},
		Permissions:      []permissionInfo{},
		TopicPermissions: []struct{}{},
		GlobalParameters: []clusterTags{{"cluster_tags", []string{}}},

		topologyDefinitions: noDefinitions(),
	}
	for _, p := range n.Access.Permissions() {
		d.Permissions = append(d.Permissions, permissionInfo(p))
	}
	for _, v := range n.VHosts() {
		d.VHosts = append(d.VHosts, vhostDefinition{Name: v.Name(), Metadata: metadata(v)})
		d.add(v, v.Name())
	}
	return d
}

func exportVHost(v *vhost.VHost) vhostDefinitions {
	m := metadata(v)
	d := vhostDefinitions{
		origin:        newOrigin("single_virtual_host", "Definitions of virtual host '"+v.Name()+"'"),
		OriginalVHost: v.Name(), Description: m.Description, Metadata: m, topologyDefinitions: noDefinitions(),
	}
	d.add(v, "")
	return d
}

// add adds the objects of a virtual host: those that were declared, and do not belong to one connection.
func (d *topologyDefinitions) add(v *vhost.VHost, name string) {
	owned := make(map[string]bool)
	for _, q := range v.Queues() {
		if q.Owner != nil {
			owned[q.Name()] = true
			continue
		}
		d.Queues = append(d.Queues, queueDefinition{
			q.Name(), name, queueType(q.Config()), q.Durable, q.AutoDelete, queueArguments(q),
		})
	}
	for _, x := range v.Exchanges() {
		if !predeclared(x.Name) {
			d.Exchanges = append(d.Exchanges, exchangeDefinition{
				x.Name, name, string(x.Kind), x.Durable, x.AutoDelete, x.Internal, arguments(x.Arguments),
			})
		}
	}
	for _, b := range v.Bindings() {
		if b.ToExchange || !owned[b.Destination] {
			info := newBindingInfo(v, b)
			d.Bindings = append(d.Bindings, bindingDefinition{
				b.Source, name, b.Destination, info.DestinationType, b.Key, info.Arguments,
			})
		}
	}
}
