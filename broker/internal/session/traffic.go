package session

import (
	"net"
	"sync/atomic"

	"github.com/reprisemq/reprise/broker/internal/stats"
)

// traffic is a connection that counts what goes over it.
type traffic struct {
	net.Conn
	bytesIn, bytesOut  atomic.Uint64
	readsIn, writesOut atomic.Uint64 // a system call may carry many frames
}

// Read implements [net.Conn].
func (t *traffic) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	t.bytesIn.Add(uint64(n))
	t.readsIn.Add(1)
	return n, err
}

// Write implements [net.Conn].
func (t *traffic) Write(b []byte) (int, error) {
	n, err := t.Conn.Write(b)
	t.bytesOut.Add(uint64(n))
	t.writesOut.Add(1)
	return n, err
}

// count lets the channel's numbers be part of the totals.
func (ch *channel) count() {
	ch.s.stats.Churn.ChannelsCreated.Add(1)
	for _, totals := range ch.totals() {
		totals.Join(&ch.counter)
	}
}

// discount leaves the channel's numbers behind when it has ended.
func (ch *channel) discount() {
	ch.s.stats.Churn.ChannelsClosed.Add(1)
	for _, totals := range ch.totals() {
		totals.Leave(&ch.counter)
	}
}

func (ch *channel) totals() [2]*stats.Totals {
	return [2]*stats.Totals{&ch.s.stats.Messages, ch.s.vhost.Messages()}
}
