package session

import (
	"net"
	"sync/atomic"

	"github.com/reprisemq/reprise/broker/internal/stats"
)

// traffic is a connection that counts bytes and system calls.
type traffic struct {
	net.Conn
	bytesIn, bytesOut  atomic.Uint64
	readsIn, writesOut atomic.Uint64 // counts of system calls; one call may transfer many frames
}

// Read implements [net.Conn].
func (t *traffic) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	t.bytesIn.Add(uint64(n))
	t.readsIn.Add(1)
	return n, err
}

// writeMost limits the size of a write, so that the session notices the progress of a slow client during a large batch.
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

// count adds the counts of the channel to the totals.
func (ch *channel) count() {
	ch.s.stats.Churn.ChannelsCreated.Add(1)
	for _, totals := range ch.totals() {
		totals.Join(&ch.counter)
	}
}

// detachCounts detaches a closed channel from the totals. The totals keep its counts.
func (ch *channel) detachCounts() {
	ch.s.stats.Churn.ChannelsClosed.Add(1)
	for _, totals := range ch.totals() {
		totals.Leave(&ch.counter)
	}
}

func (ch *channel) totals() [2]*stats.Totals {
	return [2]*stats.Totals{&ch.s.stats.Messages, ch.s.vhost.Messages()}
}
