package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Info is what there is to know of a connection.
type Info struct {
	Name             string
	Peer, Host       string // addresses of the two ends
	User, VHost      string // empty until the handshake is over
	ClientProperties amqpwire.Table
	Connected        time.Time
	Heartbeat        time.Duration
	FrameMax         uint32
	ChannelMax       uint16
	Blocked          bool
	TLS              bool
	Mechanism        string
	Channels         []ChannelInfo
}

// ChannelInfo is what there is to know of a channel.
type ChannelInfo struct {
	Number    uint16
	Confirm   bool
	Tx        bool
	Prefetch  uint16
	Unacked   int
	Consumers []ConsumerInfo
}

// ConsumerInfo is what there is to know of a consumer.
type ConsumerInfo struct {
	Tag       string
	Queue     string
	NoAck     bool
	Exclusive bool
	Prefetch  int
	Arguments amqpwire.Table
}

// Name returns what RabbitMQ calls a connection: the client's address and the server's.
func (s *Session) Name() string {
	return s.conn.RemoteAddr().String() + " -> " + s.conn.LocalAddr().String()
}

// Connected returns when the connection was made.
func (s *Session) Connected() time.Time { return s.connected }

// Info describes the connection as it is now.
func (s *Session) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := Info{
		Name: s.Name(), Peer: s.conn.RemoteAddr().String(), Host: s.conn.LocalAddr().String(), Connected: s.connected,
		Blocked: s.blocked.Load(),
	}
	if !s.opened {
		return info // the handshake is the reader's own
	}
	info.User, info.VHost, info.ClientProperties = s.user, s.vhost.Name(), s.clientProperties
	info.Heartbeat, info.FrameMax, info.ChannelMax = s.heartbeat, s.frameMax, s.channelMax
	info.TLS, info.Mechanism = s.overTLS(), s.mechanism
	for _, ch := range s.channels {
		info.Channels = append(info.Channels, ch.info())
	}
	slices.SortFunc(info.Channels, func(a, b ChannelInfo) int { return cmp.Compare(a.Number, b.Number) })
	return info
}

func (ch *channel) info() ChannelInfo {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	info := ChannelInfo{
		Number: ch.id, Confirm: ch.confirms.on, Tx: ch.tx != nil, Prefetch: ch.prefetch, Unacked: ch.unacked.len(),
	}
	for _, c := range ch.consumers {
		info.Consumers = append(info.Consumers, ConsumerInfo{
			Tag: c.tag, Queue: c.queue.Name(), NoAck: c.NoAck, Exclusive: c.Exclusive, Prefetch: c.window.limit,
			Arguments: c.arguments,
		})
	}
	slices.SortFunc(info.Consumers, func(a, b ConsumerInfo) int { return cmp.Compare(a.Tag, b.Tag) })
	return info
}
