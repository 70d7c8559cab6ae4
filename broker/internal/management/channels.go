package management

import (
	"fmt"
	"iter"
	"slices"

	"github.com/reprisemq/reprise/broker/internal/session"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// connectionRef returns the fields that identify a connection.
func connectionRef(s *session.Info) fields {
	host, port := splitAddr(s.Peer)
	return fields{"name": s.Name, "peer_host": host, "peer_port": port}
}

func channelName(s *session.Info, ch *session.ChannelInfo) string {
	return fmt.Sprintf("%s (%d)", s.Name, ch.Number)
}

// describeChannel returns an element of GET /api/channels.
func (c *call) describeChannel(s *session.Info, ch *session.ChannelInfo) fields {
	name := channelName(s, ch)
	return fields{
		"name":                      name,
		"number":                    ch.Number,
		"node":                      NodeName,
		"vhost":                     s.VHost,
		"user":                      s.User,
		"user_who_performed_action": s.User,
		"connection_details":        connectionRef(s),
		"state":                     s.State,
		"confirm":                   ch.Confirm,
		"transactional":             ch.Tx,
		"prefetch_count":            ch.Prefetch,
		"consumer_count":            len(ch.Consumers),
		"acks_uncommitted":          ch.AcksUncommitted,
		"messages_unacknowledged":   ch.Unacked,
		"messages_uncommitted":      ch.Uncommitted,
		"messages_unconfirmed":      ch.Unconfirmed,
	}.with(c.h.rates.messageStats(name, ch.Stats, clientCounters))
}

// describeConsumer returns an element of GET /api/consumers.
func describeConsumer(s *session.Info, ch *session.ChannelInfo, consumer *session.ConsumerInfo) fields {
	status := "up"
	switch {
	case !consumer.Active:
		status = "waiting"
	case consumer.SingleActive:
		status = "single_active"
	}
	channel := fields{"name": channelName(s, ch), "number": ch.Number, "node": NodeName, "user": s.User}
	channel["connection_name"] = s.Name
	channel["peer_host"], channel["peer_port"] = splitAddr(s.Peer)
	return fields{
		"consumer_tag":     consumer.Tag,
		"queue":            fields{"name": consumer.Queue, "vhost": s.VHost},
		"channel_details":  channel,
		"arguments":        arguments(consumer.Arguments),
		"ack_required":     !consumer.NoAck,
		"active":           consumer.Active,
		"activity_status":  status,
		"consumer_timeout": consumer.Timeout.Milliseconds(),
		"exclusive":        consumer.Exclusive,
		"prefetch_count":   consumer.Prefetch,
	}
}

func (c *call) channelsIn(sessions iter.Seq[session.Info]) iter.Seq[element] {
	return func(yield func(element) bool) {
		for s := range sessions {
			for i := range s.Channels {
				if !yield(func() fields { return c.describeChannel(&s, &s.Channels[i]) }) {
					return
				}
			}
		}
	}
}

func listChannels(c *call) (any, error) {
	found, err := c.sessionsHere()
	return pages(c.channelsIn(found)), err
}

func channelsOf(c *call) (any, error) {
	if c.PathValue("part") != "channels" {
		return nil, notFound
	}
	found, err := c.session()
	if err != nil {
		return nil, err
	}
	return list(c.channelsIn(slices.Values([]session.Info{found.Info()}))), nil
}

func getChannel(c *call) (any, error) {
	for _, found := range c.node.Sessions() {
		s := found.Info()
		for _, ch := range s.Channels {
			if channelName(&s, &ch) != c.PathValue("name") {
				continue
			}
			return c.describeChannel(&s, &ch).with(fields{
				"consumer_details": list(consumersOf(&s, &ch, "")), "deliveries": []fields{}, "publishes": []fields{},
			}), c.owns(s.User)
		}
	}
	return nil, notFound
}

// listConsumers returns the consumers of all users, in the virtual hosts that the calling user may see. A user with the
// privilege monitor may request the consumers of any virtual host.
func listConsumers(c *call) (any, error) {
	vhosts, err := c.visible()
	if v := c.node.VHost(c.PathValue("vhost")); v != nil && c.is(monitor) {
		vhosts, err = []*vhost.VHost{v}, nil
	}
	if err != nil {
		return nil, err
	}
	return list(func(yield func(element) bool) {
		for _, v := range vhosts {
			for consumer := range c.consumersIn(v.Name(), "") {
				if !yield(consumer) {
					return
				}
			}
		}
	}), nil
}

// consumersIn returns the consumers in a virtual host or, if queue is not "", only the consumers of this queue.
func (c *call) consumersIn(host, queue string) iter.Seq[element] {
	return func(yield func(element) bool) {
		for _, found := range c.node.Sessions() {
			s := found.Info()
			if s.VHost != host {
				continue
			}
			for _, ch := range s.Channels {
				for consumer := range consumersOf(&s, &ch, queue) {
					if !yield(consumer) {
						return
					}
				}
			}
		}
	}
}

// consumersOf returns the consumers on a channel or, if queue is not "", only the consumers of this queue.
func consumersOf(s *session.Info, ch *session.ChannelInfo, queue string) iter.Seq[element] {
	return func(yield func(element) bool) {
		for i := range ch.Consumers {
			consumer := &ch.Consumers[i]
			if queue != "" && consumer.Queue != queue {
				continue
			}
			if !yield(func() fields { return describeConsumer(s, ch, consumer) }) {
				return
			}
		}
	}
}
