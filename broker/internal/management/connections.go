package management

import (
	"cmp"
	"iter"

	"github.com/reprisemq/reprise/broker/internal/session"
)

func (h *Handler) connections() {
	h.handle("GET /api/connections", anyone, listConnections)
	h.handle("GET /api/vhosts/{vhost}/connections", anyone, whole(listConnections))
	h.handle("GET /api/connections/{name}", anyone, func(c *call) (any, error) {
		s, err := c.session()
		if err != nil {
			return nil, err
		}
		return c.describeConnection(s.Info()), nil
	})
	h.handle("DELETE /api/connections/{name}", anyone, closeConnection)
	h.handle("GET /api/connections/username/{user}", anyone, connectionsOf)
	h.handle("DELETE /api/connections/username/{user}", anyone, closeConnectionsOf)
	// The literal "channels" would conflict with the previous patterns.
	h.handle("GET /api/connections/{name}/{part}", anyone, channelsOf)
	h.handle("GET /api/channels", anyone, listChannels)
	h.handle("GET /api/vhosts/{vhost}/channels", anyone, whole(listChannels))
	h.handle("GET /api/channels/{name}", anyone, getChannel)
	h.handle("GET /api/consumers", anyone, listConsumers)
	h.handle("GET /api/consumers/{vhost}", anyone, listConsumers)
}

// describeConnection returns an element of GET /api/connections.
func (c *call) describeConnection(s session.Info) fields {
	info := fields{
		"name":                      s.Name,
		"node":                      NodeName,
		"type":                      "network",
		"protocol":                  "AMQP 0-9-1",
		"vhost":                     s.VHost,
		"user":                      s.User,
		"user_who_performed_action": s.User,
		"auth_mechanism":            s.Mechanism,
		"ssl":                       s.TLS,
		"state":                     s.State,
		"connected_at":              s.Connected.UnixMilli(),
		"timeout":                   int64(s.Heartbeat.Seconds()),
		"frame_max":                 s.FrameMax,
		"channel_max":               s.ChannelMax,
		"channels":                  len(s.Channels),
		"client_properties":         arguments(s.ClientProperties),
		"recv_cnt":                  s.Reads,
		"send_cnt":                  s.Writes,
		"send_pend":                 0,
	}.with(c.h.rates.counted(s.Name, "recv_oct", s.BytesIn)).with(c.h.rates.counted(s.Name, "send_oct", s.BytesOut))
	info["host"], info["port"] = splitAddr(s.Host)
	info["peer_host"], info["peer_port"] = splitAddr(s.Peer)
	given, _ := s.ClientProperties.Get("connection_name")
	if name, _ := given.(string); name != "" {
		info["user_provided_name"] = name
	}
	return info
}

// sessions returns the connections that the calling user may see: all connections for a monitor, otherwise only the
// user's connections. Before authentication, a connection does not belong to any user.
func (c *call) sessions() iter.Seq[session.Info] {
	return func(yield func(session.Info) bool) {
		for _, s := range c.node.Sessions() {
			if info := s.Info(); (c.is(monitor) || info.User == c.user.Name) && !yield(info) {
				return
			}
		}
	}
}

// sessionsHere is like sessions, but if the path contains a virtual host, it returns only the connections to this
// virtual host.
func (c *call) sessionsHere() (iter.Seq[session.Info], error) {
	if c.PathValue("vhost") == "" {
		return c.sessions(), nil
	}
	v, err := c.vhost()
	if err != nil {
		return nil, err
	}
	return func(yield func(session.Info) bool) {
		for s := range c.sessions() {
			if s.VHost == v.Name() && !yield(s) {
				return
			}
		}
	}, nil
}

func listConnections(c *call) (any, error) {
	found, err := c.sessionsHere()
	return pages(func(yield func(element) bool) {
		for s := range found {
			if !yield(func() fields { return c.describeConnection(s) }) {
				return
			}
		}
	}), err
}

// owns returns an error unless the calling user is an administrator or the given user.
func (c *call) owns(user string) error {
	if !c.is(administrator) && user != c.user.Name {
		return notYours
	}
	return nil
}

// session returns the connection in the path, or an error if the connection does not exist or the calling user may not
// access it.
func (c *call) session() (*session.Session, error) {
	for _, s := range c.node.Sessions() {
		if s.Name() != c.PathValue("name") {
			continue
		}
		return s, c.owns(s.Info().User)
	}
	return nil, notFound
}

func closeConnection(c *call) (any, error) {
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	c.closeSession(s)
	return done{}, nil
}

// closeSession closes a connection as RabbitMQ's management API does. The reason is in the X-Reason header of the request.
func (c *call) closeSession(s *session.Session) {
	reason := cmp.Or(c.Header.Get("X-Reason"), "Closed via management plugin")
	c.h.log.Info("closing connection on request", "user", c.user.Name, "connection", s.Name(), "reason", reason)
	s.Force(reason)
}

func connectionsOf(c *call) (any, error) {
	user := c.PathValue("user")
	return list(func(yield func(element) bool) {
		for s := range c.sessions() {
			if s.User != user {
				continue
			}
			if !yield(func() fields { return fields{"name": s.Name, "vhost": s.VHost, "user": s.User, "node": NodeName} }) {
				return
			}
		}
	}), nil
}

func closeConnectionsOf(c *call) (any, error) {
	user := c.PathValue("user")
	if err := c.owns(user); err != nil {
		return nil, err
	}
	for _, s := range c.node.Sessions() {
		if s.Info().User == user {
			c.closeSession(s)
		}
	}
	return done{}, nil
}
