package session

import (
	"cmp"
	"slices"
	"time"

	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Info describes a connection.
type Info struct {
	Name             string
	Peer, Host       string // addresses of the client and the server
	User, VHost      string // empty until the handshake is complete
	ClientProperties amqpwire.Table
	Connected        time.Time
	Heartbeat        time.Duration
	FrameMax         uint32
	ChannelMax       uint16
	Blocked          bool
	TLS              bool
	Mechanism        string
	State            string // as in RabbitMQ
	// Bytes and system calls in each direction.
	BytesIn, BytesOut uint64
	Reads, Writes     uint64
	Channels          []ChannelInfo
}

// ChannelInfo describes a channel.
type ChannelInfo struct {
	Number   uint16
	Confirm  bool
	Tx       bool
	Prefetch uint16
	Unacked  int
	// Counts of unconfirmed messages, and of messages and acks in an open transaction.
	Unconfirmed     uint64
	Uncommitted     int
	AcksUncommitted int
	Stats           stats.Counts
	Consumers       []ConsumerInfo
}

// ConsumerInfo describes a consumer.
type ConsumerInfo struct {
	Tag       string
	Queue     string
	NoAck     bool
	Exclusive bool
	Prefetch  int
	Timeout   time.Duration
	Active    bool // the queue may deliver messages to it
	// SingleActive reports whether only one consumer of the queue is active at a time.
	SingleActive bool
	Arguments    amqpwire.Table
}

// Name returns the connection name, as in RabbitMQ: the addresses of the client and the server.
func (s *Session) Name() string {
	return s.conn.RemoteAddr().String() + " -> " + s.conn.LocalAddr().String()
}

// Connected returns the time at which the connection was accepted.
func (s *Session) Connected() time.Time { return s.connected }

// Info returns the current state of the connection.
func (s *Session) Info() Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	info := Info{
		Name: s.Name(), Peer: s.conn.RemoteAddr().String(), Host: s.conn.LocalAddr().String(), Connected: s.connected,
		Blocked: s.blocked.Load(), State: s.state(),
		BytesIn: s.traffic.bytesIn.Load(), BytesOut: s.traffic.bytesOut.Load(),
		Reads: s.traffic.readsIn.Load(), Writes: s.traffic.writesOut.Load(),
	}
	if !s.opened {
		return info // until then, only the reader may access the results of the handshake
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

func (s *Session) state() string {
	switch {
	case s.closing.Load():
		return "closing"
	case !s.opened:
		return "starting"
	case s.blocked.Load():
		return "blocked"
	}
	return "running"
}

func (ch *channel) info() ChannelInfo {
	info, consumers := ch.describe()
	// The lock order forbids calling a queue while the lock of a channel is held.
	for i, c := range consumers {
		info.Consumers[i].Active, info.Consumers[i].SingleActive = c.queue.Active(&c.Consumer), c.queue.Config().SingleActive
	}
	slices.SortFunc(info.Consumers, func(a, b ConsumerInfo) int { return cmp.Compare(a.Tag, b.Tag) })
	return info
}

func (ch *channel) describe() (ChannelInfo, []*consumer) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	info := ChannelInfo{
		Number: ch.id, Confirm: ch.unconfirmed.on, Tx: ch.tx != nil, Prefetch: ch.prefetch, Unacked: ch.unacked.len(),
		Unconfirmed: ch.s.confirms.pending(ch), Stats: ch.counter.Counts(),
	}
	if ch.tx != nil {
		info.Uncommitted = len(ch.tx.published)
		for _, s := range ch.tx.settled {
			info.AcksUncommitted += len(s.deliveries)
		}
	}
	var consumers []*consumer
	for _, c := range ch.consumers {
		consumers = append(consumers, c)
		info.Consumers = append(info.Consumers, ConsumerInfo{
			Tag: c.tag, Queue: c.queue.Name(), NoAck: c.NoAck, Exclusive: c.Exclusive, Prefetch: c.window.limit,
			Timeout: c.timeout, Arguments: c.arguments,
		})
	}
	return info, consumers
}
