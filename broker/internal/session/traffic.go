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

// writeMost bounds what is written at a time: of a large batch to a slow reader it can be seen that it goes on.
const writeMost = 128 << 10

// Write implements [net.Conn].
func (t *traffic) Write(b []byte) (written int, err error) {
	for err == nil && written < len(b) {
		var n int
		n, err = t.Conn.Write(b[written:min(len(b), written+writeMost)])
		written += n
		t.bytesOut.Add(uint64(n))
		t.writesOut.Add(1)
	}
	return written, err
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
