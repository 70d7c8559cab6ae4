package management

import (
	"errors"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/node"
)

func (h *Handler) topicPermissions() {
	h.handle("GET /api/topic-permissions", administrator, func(c *call) (any, error) {
		return c.node.Access.TopicPermissions(anyTopic), nil
	})
	h.handle("GET /api/users/{user}/topic-permissions", administrator, func(c *call) (any, error) {
		user := c.PathValue("user")
		return c.node.Access.TopicPermissions(func(p access.TopicPermission) bool { return p.User == user }), userExists(c)
	})
	h.handle("GET /api/vhosts/{vhost}/topic-permissions", administrator, func(c *call) (any, error) {
		v, err := c.vhost()
		if err != nil {
			return nil, err
		}
		return c.node.Access.TopicPermissions(func(p access.TopicPermission) bool { return p.VHost == v.Name() }), nil
	})
	// As in RabbitMQ, only DELETE evaluates the exchange in the path.
	for _, path := range []string{"", "/{exchange}"} {
		path = " /api/topic-permissions/{vhost}/{user}" + path
		h.handle("GET"+path, administrator, func(c *call) (any, error) {
			found := c.topicPermissions()
			if len(found) == 0 {
				return nil, notFound
			}
			return found, nil
		})
		h.handle("PUT"+path, administrator, putTopicPermission)
		h.handle("DELETE"+path, administrator, deleteTopicPermissions)
	}
}

func anyTopic(access.TopicPermission) bool { return true }

// topicPermissions returns the topic permissions of the user and the virtual host in the path.
func (c *call) topicPermissions() []access.TopicPermission {
	user, vhost := c.PathValue("user"), c.PathValue("vhost")
	return c.node.Access.TopicPermissions(func(p access.TopicPermission) bool { return p.User == user && p.VHost == vhost })
}

func putTopicPermission(c *call) (any, error) {
	if err := c.granteeExists(); err != nil {
		return nil, err
	}
	var p access.TopicPermission
	if err := c.decode(&p, "exchange", "write", "read"); err != nil {
		return nil, err
	}
	p.User, p.VHost = c.PathValue("user"), c.PathValue("vhost") // the body may contain other names
	existed := len(c.topicPermissions()) > 0
	return stored(existed), setTopicPermission(c.node, p)
}

func setTopicPermission(n *node.Node, p access.TopicPermission) error {
	err := n.SetTopicPermission(p)
	if errors.Is(err, node.ErrNoExchange) {
		return badRequest([]string{"no_such_exchange", p.Exchange})
	}
	return err
}

func deleteTopicPermissions(c *call) (any, error) {
	if len(c.topicPermissions()) == 0 {
		return nil, notFound
	}
	var exchange *string
	if name := c.PathValue("exchange"); name != "" {
		exchange = &name
	}
	c.node.Access.DeleteTopicPermissions(c.PathValue("user"), c.PathValue("vhost"), exchange)
	return done{}, nil
}
