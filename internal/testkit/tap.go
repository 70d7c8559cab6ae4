package testkit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
)

// A Tap carries the connections of one client and sees each frame cross, one at
// a time:
//
//	client ── publishing ──► Tap ──► broker
//	       ◄─ consuming ───      ◄──
//
// What crosses from a moment on can be recorded (Record), and the recording is
// the script for cuts (Cut): the same happens again, frame by frame, until the
// place where some of the lines are cut. Each frame waits for its turn meanwhile,
// so that what comes in on two lines has one order, and a broker that is slow
// changes nothing.
//
// Heartbeats pass by themselves and are not seen: they are a matter of time.
//
// A Tap has no sockets of its own. In a testing/synctest bubble, with a DialFunc
// that leads to an embedded broker, all of it is virtual. All methods may be
// called from any goroutine.
type Tap struct {
	dial  DialFunc
	names []string
	wg    sync.WaitGroup // all goroutines

	mu       sync.Mutex // never held across I/O
	changed  *sync.Cond // the turn has passed on, or a line or the tap has ended
	busy     bool       // a frame is crossing
	closed   bool
	refusing bool
	lines    map[string]*tapLine // that are in use
	crossed  map[Crossing]int
	acked    int
	held     map[Crossing]bool

	recording bool
	recorded  []Crossing

	cut  *Cut // or nil
	next int  // in cut.Script
	done chan struct{}
}

// DialFunc opens a network connection, as net.Dialer's DialContext does.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// A Crossing is a frame on its way.
type Crossing struct {
	Line      string
	Direction Direction

	// Name is a method's, such as "basic.publish", or of what follows it:
	// "basic.publish: header" and "basic.publish: body".
	Name string
}

// String is for people.
func (c Crossing) String() string { return fmt.Sprintf("%s, %s: %s", c.Line, c.Direction, c.Name) }

// A Cut says where, and how, connections are to be cut.
type Cut struct {
	Script []Crossing // what is to cross, in this order
	At     int        // the cut comes when this one of them is about to
	Lines  []string   // what is cut; a frame about to cross on one of these is lost

	// Unnoticed: the client is not told. A line that is cut carries nothing any
	// more, and the client gets to know when it next sends something on it, or by
	// Notice. The broker knows at once in any case.
	Unnoticed bool

	// Refuse lets no new connection through, as if the client had ended.
	Refuse bool

	// Then, unless it is nil, is called when the lines are cut; nothing crosses
	// until it returns.
	Then func()
}

// NewTap returns a tap in front of what dial leads to. A new connection gets the
// first of the names that is not in use, so these are in the order in which the
// client connects. The tap is to be closed.
func NewTap(dial DialFunc, names ...string) *Tap {
	p := &Tap{
		dial: dial, names: names,
		lines:   make(map[string]*tapLine),
		crossed: make(map[Crossing]int),
		held:    make(map[Crossing]bool),
	}
	p.changed = sync.NewCond(&p.mu)
	return p
}

var errNoLine = errors.New("tap: no connection is let through")

// Dial opens a connection through the tap.
func (p *Tap) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l, err := p.reserve()
	if err != nil {
		return nil, err
	}
	server, err := p.dial(ctx, network, addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.refusing {
		server.Close()
		err = errNoLine
	}
	if err != nil {
		delete(p.lines, l.name)
		return nil, err
	}
	near, far := net.Pipe()
	l.client, l.server = far, server
	p.wg.Go(func() { l.forward(ToServer) })
	p.wg.Go(func() { l.forward(ToClient) })
	return &tapConn{Conn: near, free: sync.OnceFunc(l.free)}, nil
}

// reserve takes a name for a connection that is not there yet.
func (p *Tap) reserve() (*tapLine, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := slices.IndexFunc(p.names, func(name string) bool { return p.lines[name] == nil })
	if p.refusing || free < 0 {
		return nil, errNoLine
	}
	l := newTapLine(p, p.names[free])
	p.lines[l.name] = l
	return l, nil
}

// Record forgets what was recorded and records from now on.
func (p *Tap) Record() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recording, p.recorded = true, nil
}

// Recorded returns what has crossed since Record.
func (p *Tap) Recorded() []Crossing {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.recorded)
}

// Crossed is how many such frames have crossed so far. One that was lost has not.
func (p *Tap) Crossed(c Crossing) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.crossed[c]
}

// Acked is how many deliveries were acknowledged by what has crossed so far.
func (p *Tap) Acked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acked
}

// Quiet reports whether nothing is crossing, and the server has got no part of a
// message without the rest of it, unless its line was cut. It understands messages
// whose body is one frame.
func (p *Tap) Quiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	quiet := !p.busy
	for _, l := range p.lines {
		quiet = quiet && (l.dead || !l.inMessage())
	}
	return quiet
}

// Refusing reports whether a cut has ended the client.
func (p *Tap) Refusing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusing
}

// Cut has frames cross in the order of a script from now on, up to its cut, and
// after that as they come. The channel is closed when the cut has happened.
func (p *Tap) Cut(c Cut) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.next, p.done = &c, 0, make(chan struct{})
	return p.done
}

// Notice tells the client of every connection that was cut without telling it.
func (p *Tap) Notice() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if l.dead {
			l.client.Close()
		}
	}
}

// Waiting says which frame of the script is to cross next, and which ones wait for
// their turn after it; "" when there is no script any more.
func (p *Tap) Waiting() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut == nil {
		return ""
	}
	return fmt.Sprintf("frame %d of the script, %s; held are %v", p.next, p.cut.Script[p.next], slices.Collect(maps.Keys(p.held)))
}

// Release has frames cross as they come, whatever script there is.
func (p *Tap) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = nil
	p.changed.Broadcast()
}

// Close ends all connections, and returns when nothing is left of them. Close the
// client before, so that it does not dial again.
func (p *Tap) Close() {
	p.mu.Lock()
	p.closed, p.refusing, p.cut = true, true, nil
	p.changed.Broadcast()
	for _, l := range p.lines {
		l.client.Close()
		l.server.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// cross waits for the frame's turn and lets it pass, or says that it is lost.
func (p *Tap) cross(l *tapLine, f tapFrame, pass func() error) (lost bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !l.dead && (p.busy || p.cut != nil && p.cut.Script[p.next] != f.Crossing) {
		p.held[f.Crossing] = true
		p.changed.Wait()
	}
	delete(p.held, f.Crossing)
	if l.dead || p.closed {
		return true, nil
	}
	p.busy = true
	defer func() {
		p.busy = false
		p.changed.Broadcast()
	}()
	switch {
	case p.cut == nil:
	case p.next == p.cut.At:
		p.happen(f.Crossing)
		if l.dead {
			return true, nil
		}
	default:
		p.next++
	}
	p.crossed[f.Crossing]++
	p.acked += l.note(f)
	if p.recording {
		p.recorded = append(p.recorded, f.Crossing)
	}
	p.mu.Unlock()
	defer p.mu.Lock()
	return false, pass()
}

// happen lets the cut happen. It lets go of p.mu meanwhile.
func (p *Tap) happen(before Crossing) {
	c, done := p.cut, p.done
	p.cut = nil
	p.refusing = p.refusing || c.Refuse
	var cut []*tapLine
	for _, name := range c.Lines {
		if l := p.lines[name]; l != nil {
			l.dead = true
			cut = append(cut, l)
		}
	}
	p.changed.Broadcast()
	p.mu.Unlock()
	defer p.mu.Lock()
	for _, l := range cut {
		if !c.Unnoticed {
			l.client.Close()
		}
		if before.Direction == ToServer || before.Line != l.name {
			l.certain()
		}
		l.hangUp()
	}
	if c.Then != nil {
		c.Then()
	}
	close(done)
}
