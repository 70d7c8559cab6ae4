package management

import (
	"fmt"

	"github.com/reprisemq/reprise/broker/internal/session"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// channelInfo is an element of GET /api/channels.
type channelInfo struct {
	Connection      connectionRef `json:"connection_details"`
	AcksUncommitted int           `json:"acks_uncommitted"`
	Confirm         bool          `json:"confirm"`
	Consumers       int           `json:"consumer_count"`
	MessageStats    *messageStats `json:"message_stats,omitempty"`
	Unacked         int           `json:"messages_unacknowledged"`
	Uncommitted     int           `json:"messages_uncommitted"`
	Unconfirmed     uint64        `json:"messages_unconfirmed"`
	Name            string        `json:"name"`
	Node            string        `json:"node"`
	Number          uint16        `json:"number"`
	Prefetch        uint16        `json:"prefetch_count"`
	State           string        `json:"state"`
	Transactional   bool          `json:"transactional"`
	User            string        `json:"user"`
	ActingUser      string        `json:"user_who_performed_action"`
	VHost           string        `json:"vhost"`
}

// channelDetail is one channel by itself. What goes where is not counted apart.
type channelDetail struct {
	channelInfo
	Details    []consumerInfo `json:"consumer_details"`
	Deliveries []struct{}     `json:"deliveries"`
	Publishes  []struct{}     `json:"publishes"`
}

// connectionRef says which connection something belongs to.
type connectionRef struct {
	Name     string `json:"name"`
	PeerHost string `json:"peer_host"`
	PeerPort int    `json:"peer_port"`
}

func newConnectionRef(name, peer string) connectionRef {
	r := connectionRef{Name: name}
	r.PeerHost, r.PeerPort = splitAddr(peer)
	return r
}

// consumerInfo is an element of GET /api/consumers.
type consumerInfo struct {
	Arguments      arguments  `json:"arguments"`
	AckRequired    bool       `json:"ack_required"`
	Active         bool       `json:"active"`
	ActivityStatus string     `json:"activity_status"`
	Channel        channelRef `json:"channel_details"`
	Tag            string     `json:"consumer_tag"`
	Timeout        int64      `json:"consumer_timeout"`
	Exclusive      bool       `json:"exclusive"`
	Prefetch       int        `json:"prefetch_count"`
	Queue          queueRef   `json:"queue"`
}

type channelRef struct {
	ConnectionName string `json:"connection_name"`
	Name           string `json:"name"`
	Node           string `json:"node"`
	Number         uint16 `json:"number"`
	PeerHost       string `json:"peer_host"`
	PeerPort       int    `json:"peer_port"`
	User           string `json:"user"`
}

type queueRef struct {
	Name  string `json:"name"`
	VHost string `json:"vhost"`
}

func channelName(s *session.Info, ch *session.ChannelInfo) string {
	return fmt.Sprintf("%s (%d)", s.Name, ch.Number)
}

func (c *call) describeChannel(s *session.Info, ch *session.ChannelInfo) channelInfo {
	name := channelName(s, ch)
	return channelInfo{
		Connection: newConnectionRef(s.Name, s.Peer), AcksUncommitted: ch.AcksUncommitted, Confirm: ch.Confirm,
		Consumers: len(ch.Consumers), MessageStats: c.h.rates.messages(name, ch.Stats),
		Unacked: ch.Unacked, Uncommitted: ch.Uncommitted, Unconfirmed: ch.Unconfirmed,
		Name: name, Node: NodeName, Number: ch.Number, Prefetch: ch.Prefetch, State: s.State, Transactional: ch.Tx,
		User: s.User, ActingUser: s.User, VHost: s.VHost,
	}
}

func describeConsumers(s *session.Info, ch *session.ChannelInfo) []consumerInfo {
	all := []consumerInfo{}
	for _, consumer := range ch.Consumers {
		status := "up"
		switch {
		case !consumer.Active:
			status = "waiting"
		case consumer.SingleActive:
			status = "single_active"
		}
		ref := newConnectionRef(s.Name, s.Peer)
		all = append(all, consumerInfo{
			Arguments: arguments(consumer.Arguments), AckRequired: !consumer.NoAck, Active: consumer.Active, ActivityStatus: status,
			Channel: channelRef{s.Name, channelName(s, ch), NodeName, ch.Number, ref.PeerHost, ref.PeerPort, s.User},
			Tag:     consumer.Tag, Timeout: consumer.Timeout.Milliseconds(), Exclusive: consumer.Exclusive,
			Prefetch: consumer.Prefetch, Queue: queueRef{consumer.Queue, s.VHost},
		})
	}
	return all
}

func listChannels(c *call) (any, error) {
	all := pagesOf[channelInfo]{}
	found, err := c.sessionsHere()
	for _, s := range found {
		for _, ch := range s.Channels {
			all = append(all, c.describeChannel(&s, &ch))
		}
	}
	return all, err
}

func channelsOf(c *call) (any, error) {
	if c.PathValue("part") != "channels" {
		return nil, notFound
	}
	found, err := c.session()
	if err != nil {
		return nil, err
	}
	all := listOf[channelInfo]{}
	s := found.Info()
	for _, ch := range s.Channels {
		all = append(all, c.describeChannel(&s, &ch))
	}
	return all, nil
}

func getChannel(c *call) (any, error) {
	for _, found := range c.node.Sessions() {
		s := found.Info()
		for _, ch := range s.Channels {
			if channelName(&s, &ch) != c.PathValue("name") {
				continue
			}
			if !c.is(administrator) && s.User != c.user.Name {
				return nil, notYours
			}
			return channelDetail{c.describeChannel(&s, &ch), describeConsumers(&s, &ch), []struct{}{}, []struct{}{}}, nil
		}
	}
	return nil, notFound
}

// listConsumers shows who consumes in the virtual hosts that the user may see, whoever it is. A monitor may ask for any.
func listConsumers(c *call) (any, error) {
	vhosts, err := c.visible()
	if v := c.node.VHost(c.PathValue("vhost")); v != nil && c.is(monitor) {
		vhosts, err = []*vhost.VHost{v}, nil
	}
	if err != nil {
		return nil, err
	}
	all := listOf[consumerInfo]{}
	for _, v := range vhosts {
		all = append(all, c.consumersIn(v.Name(), "")...)
	}
	return all, nil
}

// consumersIn returns the consumers in a virtual host, of one queue or, without a name, of all.
func (c *call) consumersIn(host, queue string) []consumerInfo {
	all := []consumerInfo{}
	for _, found := range c.node.Sessions() {
		s := found.Info()
		if s.VHost != host {
			continue
		}
		for _, ch := range s.Channels {
			for _, consumer := range describeConsumers(&s, &ch) {
				if queue == "" || consumer.Queue.Name == queue {
					all = append(all, consumer)
				}
			}
		}
	}
	return all
}
