package session

import (
	"io"
	"sync/atomic"

	"github.com/reprisemq/reprise/broker/internal/stats"
)

// traffic counts what goes over a connection.
type traffic struct {
	bytesIn, bytesOut  atomic.Uint64
	readsIn, writesOut atomic.Uint64 // a system call may carry many frames
}

func (t *traffic) reader(r io.Reader) io.Reader { return countedReader{r, t} }
func (t *traffic) writer(w io.Writer) io.Writer { return countedWriter{w, t} }

type countedReader struct {
	io.Reader
	traffic *traffic
}

func (r countedReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.traffic.bytesIn.Add(uint64(n))
	r.traffic.readsIn.Add(1)
	return n, err
}

type countedWriter struct {
	io.Writer
	traffic *traffic
}

func (w countedWriter) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	w.traffic.bytesOut.Add(uint64(n))
	w.traffic.writesOut.Add(1)
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
