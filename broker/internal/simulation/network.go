package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// Network connects clients to the broker. The owner of a connection is the process that opened it.
type Network struct {
	l *Life

	mu      sync.Mutex
	dialled int
	links   map[*Link]struct{}
	dead    map[string]bool      // owners whose processes have crashed
	refused map[string]time.Time // time until which an owner cannot connect
	muted   map[string]time.Time // time until which no confirm arrives for a routing key
}

func newNetwork(l *Life) *Network {
	return &Network{l: l, links: make(map[*Link]struct{}), dead: make(map[string]bool), refused: make(map[string]time.Time), muted: make(map[string]time.Time)}
}

var (
	errRefused = errors.New("simulation: connection refused")
	errDead    = errors.New("simulation: process exited")
)

// Dialer returns the dial function of an owner, for reprise.Config.Dial.
func (n *Network) Dialer(owner string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return n.Dial(owner)
	}
}

// Dial opens a connection from an owner to the broker.
func (n *Network) Dial(owner string) (net.Conn, error) {
	n.mu.Lock()
	switch {
	case n.dead[owner]:
		n.mu.Unlock()
		return nil, errDead
	case time.Now().Before(n.refused[owner]):
		n.mu.Unlock()
		return nil, errRefused
	}
	n.dialled++
	latency := n.l.Script.Shape.Latency
	k := &Link{
		n: n, Owner: owner, Number: n.dialled, Opened: time.Now(),
		up: newStream(latency), down: newStream(latency),
	}
	k.tap = newTap(k)
	for key := range n.muted {
		k.tap.muted[key] = true
	}
	n.links[k] = struct{}{}
	n.mu.Unlock()
	address := linkAddr(fmt.Sprintf("%s:%d", owner, k.Number))
	if err := n.l.Server.serve(brokerEnd{&linkEnd{k: k, read: k.up, write: k.down, local: "broker", remote: address}}); err != nil {
		n.forget(k)
		return nil, err
	}
	return &linkEnd{k: k, read: k.down, write: k.up, local: address, remote: "broker"}, nil
}

// Links returns the open connections of an owner, oldest first. An empty owner selects all connections.
func (n *Network) Links(owner string) (all []*Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for k := range n.links {
		if owner == "" || k.Owner == owner {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b *Link) int { return a.Number - b.Number })
	return all
}

// Refuse rejects new connections of an owner for a while.
func (n *Network) Refuse(owner string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused[owner] = time.Now().Add(d)
}

// Kill cuts the connections of an owner and rejects new connections, as if its process had crashed.
func (n *Network) Kill(owner string) {
	n.mu.Lock()
	n.dead[owner] = true
	n.mu.Unlock()
	for _, k := range n.Links(owner) {
		k.Cut("crash")
	}
}

// Revive permits connections of an owner again, after a restart of its process.
func (n *Network) Revive(owner string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.dead, owner)
}

func (n *Network) forget(k *Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.links, k)
}

func (n *Network) heal() {
	n.mu.Lock()
	clear(n.refused)
	muted := slices.Collect(maps.Keys(n.muted))
	n.mu.Unlock()
	for _, key := range muted {
		n.release(key)
	}
	for _, k := range n.Links("") {
		k.tap.mu.Lock()
		k.tap.until = time.Time{}
		k.tap.mu.Unlock()
		if k.harmed() {
			k.Cut("cut") // the connection cannot continue, because bytes are missing
		}
		k.up.stall(time.Time{})
		k.down.stall(time.Time{})
		k.up.cutAfter(-1, nil)
		k.down.cutAfter(-1, nil)
	}
}

const promiseClosed = "Close closes both connections and returns when every goroutine of the client has returned"

// end reports connections that are still open and cuts them.
func (n *Network) end() {
	time.Sleep(5 * time.Second) // time for the bytes in flight
	for _, k := range n.Links("") {
		n.l.Broken(promiseClosed, "connection %d of %s is still open", k.Number, k.Owner)
		k.Cut("end")
	}
}

// Link is a connection.
type Link struct {
	Owner  string
	Number int
	Opened time.Time

	n        *Network
	up, down *stream // towards the broker, and from the broker
	tap      *tap
	once     sync.Once

	mu      sync.Mutex
	ended   int // number of closed ends
	faulted bool
	noted   []*Disturbance
}

// Cut cuts the connection. Both ends notice immediately, and bytes in flight are lost.
func (k *Link) Cut(why string) {
	k.disturb(why)
	k.sever()
}

func (k *Link) sever() {
	k.up.cut()
	k.down.cut()
	k.finish()
}

// finish runs once, when both ends are closed or the connection is cut.
func (k *Link) finish() {
	k.once.Do(func() {
		k.n.forget(k)
		k.tap.check()
		k.mu.Lock()
		noted := k.noted
		k.mu.Unlock()
		for _, d := range noted {
			d.End()
		}
	})
}

// disturb records a disturbance that lasts until the connection is closed.
func (k *Link) disturb(why string) {
	d := k.n.l.Disturb(k.Owner, why)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.noted = append(k.noted, d)
}

func (k *Link) harmed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.faulted
}

// CutAfter cuts the connection after a number of further bytes in one direction.
func (k *Link) CutAfter(bytes int, towardsBroker bool) {
	k.disturb("cut")
	s := k.down
	if towardsBroker {
		s = k.up
	}
	s.cutAfter(bytes, k.sever)
}

// Swallow discards all further bytes without an error: towards the broker, from the broker, or both.
func (k *Link) Swallow(up, down bool) {
	k.disturb("half-dead")
	k.mu.Lock()
	k.faulted = true
	k.mu.Unlock()
	if up {
		k.up.swallow()
	}
	if down {
		k.down.swallow()
	}
}

// Stall delays bytes in the selected directions until a given time.
func (k *Link) Stall(until time.Time, up, down bool) {
	d := k.n.l.Disturb(k.Owner, "stall")
	time.AfterFunc(time.Until(until), d.End)
	if up {
		k.up.stall(until)
	}
	if down {
		k.down.stall(until)
	}
}

// linkAddr identifies a connection in logs.
type linkAddr string

func (linkAddr) Network() string  { return "pipe" }
func (a linkAddr) String() string { return string(a) }

// linkEnd is one end of a connection.
type linkEnd struct {
	k             *Link
	read, write   *stream
	local, remote linkAddr
	closed        sync.Once
}

// Read implements net.Conn.
func (e *linkEnd) Read(p []byte) (int, error) { return e.read.take(p) }

// Write implements net.Conn. It does not block.
func (e *linkEnd) Write(p []byte) (int, error) { return e.write.put(p) }

// Close implements net.Conn. The other end can still read the bytes that were written before.
func (e *linkEnd) Close() error {
	e.closed.Do(func() {
		e.read.abandon()
		e.write.finish()
		e.k.mu.Lock()
		e.k.ended++
		both := e.k.ended == 2
		e.k.mu.Unlock()
		if both {
			e.k.finish()
		}
	})
	return nil
}

// LocalAddr implements net.Conn.
func (e *linkEnd) LocalAddr() net.Addr { return e.local }

// RemoteAddr implements net.Conn.
func (e *linkEnd) RemoteAddr() net.Addr { return e.remote }

// SetDeadline implements net.Conn.
func (e *linkEnd) SetDeadline(t time.Time) error { return e.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (e *linkEnd) SetReadDeadline(t time.Time) error {
	e.read.expect(t)
	return nil
}

// SetWriteDeadline implements net.Conn. It does nothing, because Write does not block.
func (e *linkEnd) SetWriteDeadline(time.Time) error { return nil }

// brokerEnd is the broker's end of a connection. It passes the frames to the tap.
type brokerEnd struct{ *linkEnd }

// Read implements net.Conn.
func (e brokerEnd) Read(p []byte) (int, error) {
	n, err := e.linkEnd.Read(p)
	e.k.tap.record(p[:n])
	return n, err
}

// Write implements net.Conn.
func (e brokerEnd) Write(p []byte) (int, error) {
	if arrives := e.k.tap.filter(p); len(arrives) > 0 {
		if _, err := e.linkEnd.Write(arrives); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
