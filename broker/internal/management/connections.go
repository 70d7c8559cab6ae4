package management

import (
	"slices"

	"github.com/reprisemq/reprise/broker/internal/session"
	"github.com/reprisemq/reprise/internal/amqpwire"
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
	h.handle("GET /api/connections/{name}/{part}", anyone, channelsOf) // as a pattern, "channels" would conflict with the above
	h.handle("GET /api/channels", anyone, listChannels)
	h.handle("GET /api/vhosts/{vhost}/channels", anyone, whole(listChannels))
	h.handle("GET /api/channels/{name}", anyone, getChannel)
	h.handle("GET /api/consumers", anyone, listConsumers)
	h.handle("GET /api/consumers/{vhost}", anyone, listConsumers)
}

// connectionInfo is GET /api/connections/{name}.
type connectionInfo struct {
	AuthMechanism    string    `json:"auth_mechanism"`
	ChannelMax       uint16    `json:"channel_max"`
	Channels         int       `json:"channels"`
	ClientProperties arguments `json:"client_properties"`
	ConnectedAt      int64     `json:"connected_at"`
	FrameMax         uint32    `json:"frame_max"`
	Host             string    `json:"host"`
	Name             string    `json:"name"`
	Node             string    `json:"node"`
	PeerHost         string    `json:"peer_host"`
	PeerPort         int       `json:"peer_port"`
	Port             int       `json:"port"`
	Protocol         string    `json:"protocol"`
	Reads            uint64    `json:"recv_cnt"`
	BytesIn          uint64    `json:"recv_oct"`
	BytesInDetails   details   `json:"recv_oct_details"`
	Writes           uint64    `json:"send_cnt"`
	BytesOut         uint64    `json:"send_oct"`
	BytesOutDetails  details   `json:"send_oct_details"`
	Pending          int       `json:"send_pend"`
	TLS              bool      `json:"ssl"`
	State            string    `json:"state"`
	Timeout          int64     `json:"timeout"`
	Type             string    `json:"type"`
	User             string    `json:"user"`
	UserProvidedName string    `json:"user_provided_name,omitempty"`
	ActingUser       string    `json:"user_who_performed_action"`
	VHost            string    `json:"vhost"`
}

func (c *call) describeConnection(s session.Info) connectionInfo {
	info := connectionInfo{
		AuthMechanism: s.Mechanism, ChannelMax: s.ChannelMax, Channels: len(s.Channels),
		ClientProperties: arguments(s.ClientProperties), ConnectedAt: s.Connected.UnixMilli(), FrameMax: s.FrameMax,
		Name: s.Name, Node: NodeName, Protocol: "AMQP 0-9-1",
		Reads: s.Reads, BytesIn: s.BytesIn, BytesInDetails: c.h.rates.of(s.Name, "in", s.BytesIn),
		Writes: s.Writes, BytesOut: s.BytesOut, BytesOutDetails: c.h.rates.of(s.Name, "out", s.BytesOut),
		TLS: s.TLS, State: s.State, Timeout: int64(s.Heartbeat.Seconds()), Type: "network",
		User: s.User, ActingUser: s.User, VHost: s.VHost,
	}
	info.Host, info.Port = splitAddr(s.Host)
	info.PeerHost, info.PeerPort = splitAddr(s.Peer)
	if name, ok := amqpwire.Table(s.ClientProperties).Get("connection_name"); ok {
		info.UserProvidedName, _ = name.(string)
	}
	return info
}

// sessions returns what the user may see of the connections: their own or, as a monitor, all. Those that have not yet said
// who they are belong to nobody.
func (c *call) sessions() []session.Info {
	var all []session.Info
	for _, s := range c.node.Sessions() {
		if info := s.Info(); c.is(monitor) || info.User == c.user.Name {
			all = append(all, info)
		}
	}
	return all
}

// sessionsHere is sessions in the virtual host of the path.
func (c *call) sessionsHere() ([]session.Info, error) {
	all := c.sessions()
	if c.PathValue("vhost") == "" {
		return all, nil
	}
	v, err := c.vhost()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(s session.Info) bool { return s.VHost != v.Name() }), nil
}

func listConnections(c *call) (any, error) {
	all := pagesOf[connectionInfo]{}
	found, err := c.sessionsHere()
	for _, s := range found {
		all = append(all, c.describeConnection(s))
	}
	return all, err
}

// session returns the connection of the path, if it is the user's, who may be an administrator.
func (c *call) session() (*session.Session, error) {
	for _, s := range c.node.Sessions() {
		if s.Name() != c.PathValue("name") {
			continue
		}
		if info := s.Info(); !c.is(administrator) && info.User != c.user.Name {
			return nil, notYours
		}
		return s, nil
	}
	return nil, notFound
}

func closeConnection(c *call) (any, error) {
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	c.shut(s)
	return done{}, nil
}

// shut closes a connection as RabbitMQ does when it is asked to, with the reason that was given.
func (c *call) shut(s *session.Session) {
	reason := c.Header.Get("X-Reason")
	if reason == "" {
		reason = "Closed via management plugin"
	}
	c.h.log.Info("closing a connection by request", "user", c.user.Name, "connection", s.Name(), "reason", reason)
	s.Force(reason)
}

// tracked is a connection in the list of one user's.
type tracked struct {
	Name  string `json:"name"`
	VHost string `json:"vhost"`
	User  string `json:"user"`
	Node  string `json:"node"`
}

func connectionsOf(c *call) (any, error) {
	all := listOf[tracked]{}
	for _, s := range c.sessions() {
		if s.User == c.PathValue("user") {
			all = append(all, tracked{s.Name, s.VHost, s.User, NodeName})
		}
	}
	return all, nil
}

func closeConnectionsOf(c *call) (any, error) {
	user := c.PathValue("user")
	if !c.is(administrator) && user != c.user.Name {
		return nil, notYours
	}
	for _, s := range c.node.Sessions() {
		if s.Info().User == user {
			c.shut(s)
		}
	}
	return done{}, nil
}
