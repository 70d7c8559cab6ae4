package management

import (
	"encoding/json"
	"strings"

	"github.com/reprisemq/reprise/broker/internal/quota"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

func (h *Handler) limits() {
	h.handle("GET /api/vhost-limits", anyone, listVHostLimits)
	h.handle("GET /api/vhost-limits/{vhost}", anyone, listVHostLimits)
	h.handle("PUT /api/vhost-limits/{vhost}/{name}", administrator, func(c *call) (any, error) {
		if _, err := c.vhostToChange(); err != nil {
			return nil, err
		}
		value, err := c.value()
		if err != nil {
			return nil, err
		}
		return done{}, c.changeLimits(func(l map[string]json.RawMessage) { l[c.PathValue("name")] = value })
	})
	h.handle("DELETE /api/vhost-limits/{vhost}/{name}", administrator, func(c *call) (any, error) {
		if _, err := c.vhostToChange(); err != nil {
			return nil, err
		}
		return done{}, c.changeLimits(func(l map[string]json.RawMessage) { delete(l, c.PathValue("name")) })
	})

	h.handle("GET /api/user-limits", administrator, func(c *call) (any, error) { return c.userLimits(""), nil })
	h.handle("GET /api/user-limits/{user}", anyone, func(c *call) (any, error) {
		name := c.PathValue("user")
		if name != c.user.Name && !c.is(administrator) {
			return nil, notYours
		}
		return c.userLimits(name), userExists(c)
	})
	h.handle("PUT /api/user-limits/{user}/{name}", administrator, putUserLimit)
	h.handle("DELETE /api/user-limits/{user}/{name}", administrator, func(c *call) (any, error) {
		if c.node.Access.ClearLimit(c.PathValue("user"), c.PathValue("name")) != nil {
			return nil, vhostNotFound // RabbitMQ returns this error
		}
		return done{}, nil
	})
}

// withLimits returns limits as fields, so that a nil map is an empty object in JSON.
func withLimits(limits quota.Limits) fields {
	all := fields{}
	for name, limit := range limits {
		all[name] = limit
	}
	return all
}

// value returns the only field in the body of a request that sets a limit or a parameter.
func (c *call) value() (json.RawMessage, error) {
	var body struct {
		Value json.RawMessage `json:"value,omitempty"` // may be null
	}
	err := c.decode(&body, "value")
	return body.Value, err
}

func listVHostLimits(c *call) (any, error) {
	vhosts, err := c.visible()
	return list(func(yield func(element) bool) {
		for _, v := range vhosts {
			limits := c.node.Parameters.Limits(v.Name())
			if len(limits) > 0 && !yield(func() fields { return fields{"vhost": v.Name(), "value": withLimits(limits)} }) {
				return
			}
		}
	}), err
}

// changeLimits changes the limits of the virtual host in the path.
func (c *call) changeLimits(change func(map[string]json.RawMessage)) error {
	return c.node.ChangeLimits(c.PathValue("vhost"), change)
}

// userLimits returns the limits of a user, or of all users if the name is empty.
func (c *call) userLimits(name string) list {
	return func(yield func(element) bool) {
		for _, u := range c.node.Access.Users() {
			if (name == "" || u.Name == name) && len(u.Limits) > 0 &&
				!yield(func() fields { return fields{"user": u.Name, "value": withLimits(u.Limits)} }) {
				return
			}
		}
	}
}

func parseUserLimits(text json.RawMessage) (quota.Limits, []string) {
	return quota.Parse("user-limits", text, quota.MaxConnections, quota.MaxChannels)
}

func putUserLimit(c *call) (any, error) {
	value, err := c.value()
	if err != nil {
		return nil, err
	}
	user, name := c.PathValue("user"), c.PathValue("name")
	text, err := json.Marshal(map[string]json.RawMessage{name: value})
	if err != nil {
		return nil, err
	}
	limits, problems := parseUserLimits(text)
	if problems != nil {
		return nil, badRequest(strings.Join(problems, "\n"))
	}
	if c.node.Access.SetLimit(user, name, limits[name]) != nil {
		return nil, badRequest([]string{"no_such_user", user})
	}
	return done{}, nil
}

// mayConnect returns an error if a connection limit is reached. RabbitMQ opens an internal connection for each request that
// publishes or gets messages.
func (c *call) mayConnect(v *vhost.VHost) error {
	if q := c.node.Quotas; q.VHostConnections.Full(v.Name()) || q.UserConnections.Full(c.user.Name) {
		return accessRefused
	}
	return nil
}
