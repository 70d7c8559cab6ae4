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

// A Tap forwards the connections of one client, one frame at a time:
//
//	client ── publishing ──► Tap ──► broker
//	       ◄─ consuming ───      ◄──
//
// Record starts to record the frames that cross. To replay a recording, pass it to Cut as the Script. The tap then repeats the
// sequence, frame by frame, up to the position of the cut. Each frame waits for its turn, so that the order of frames on
// different lines is fixed, and a slow broker does not change it.
//
// The tap forwards heartbeats without recording them, because they depend on time.
//
// A Tap does not use sockets. In a testing/synctest bubble, with a DialFunc for an embedded broker, it runs in virtual
// time. All methods are safe for concurrent use.
type Tap struct {
	dial  DialFunc
	names []string
	wg    sync.WaitGroup // all goroutines

	mu       sync.Mutex // never held across I/O
	changed  *sync.Cond // signals that the turn has changed, or that a line or the tap has closed
	busy     bool       // a frame is crossing
	closed   bool
	refusing bool
	lines    map[string]*tapLine // lines in use
	crossed  map[Crossing]int
	acked    int
	held     map[Crossing]bool

	recording bool
	recorded  []Crossing

	cut  *Cut // may be nil
	next int  // index in cut.Script
	done chan struct{}
}

// DialFunc opens a network connection, as net.Dialer's DialContext does.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// A Crossing is a frame that crosses the tap.
type Crossing struct {
	Line      string
	Direction Direction

	// Name is the name of a method, such as "basic.publish". For header and body frames it has a suffix:
	// "basic.publish: header" and "basic.publish: body".
	Name string
}

// String returns a description for messages.
func (c Crossing) String() string { return fmt.Sprintf("%s, %s: %s", c.Line, c.Direction, c.Name) }

// A Cut specifies when and how to cut connections.
type Cut struct {
	Script []Crossing // the expected frames, in this order
	At     int        // index of the frame before which the cut happens
	Lines  []string   // the lines to cut; a frame that is about to cross one of them is lost

	// Unnoticed hides the cut from the client. A cut line no longer forwards frames. The client notices the cut at its
	// next write on the line, or after Notice. The broker always notices the cut immediately.
	Unnoticed bool

	// Refuse rejects new connections, as if the client had exited.
	Refuse bool

	// Then, if not nil, is called after the cut. Frames do not cross until it returns.
	Then func()
}

// NewTap returns a tap that uses dial to connect to the broker. A new connection gets the first unused name, so list the
// names in the order in which the client connects. The caller must close the tap.
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

var errNoLine = errors.New("tap: cannot accept connection")

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

// reserve reserves a name for a connection that does not exist yet.
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

// Record deletes the recording and starts a new one.
func (p *Tap) Record() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recording, p.recorded = true, nil
}

// Recorded returns the frames that have crossed since Record.
func (p *Tap) Recorded() []Crossing {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.recorded)
}

// Crossed returns the number of frames that have crossed and are equal to c. Lost frames do not count.
func (p *Tap) Crossed(c Crossing) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.crossed[c]
}

// Acked returns the number of deliveries that the crossed frames have acknowledged.
func (p *Tap) Acked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acked
}

// Quiet reports whether no frame is crossing, and no server has received an incomplete message on a line that is not cut.
// It supports only messages whose body is one frame.
func (p *Tap) Quiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	quiet := !p.busy
	for _, l := range p.lines {
		quiet = quiet && (l.dead || !l.inMessage())
	}
	return quiet
}

// Refusing reports whether the tap rejects new connections.
func (p *Tap) Refusing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refusing
}

// Cut makes frames cross in the order of c.Script, up to the cut. After the cut, frames cross in the order of arrival. The
// returned channel is closed when the cut has happened.
func (p *Tap) Cut(c Cut) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.next, p.done = &c, 0, make(chan struct{})
	return p.done
}

// Notice closes the client's end of every unnoticed cut connection.
func (p *Tap) Notice() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if l.dead {
			l.client.Close()
		}
	}
}

// Waiting returns the next frame of the script and the frames that wait for their turn. It returns "" without a script.
func (p *Tap) Waiting() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut == nil {
		return ""
	}
	return fmt.Sprintf("frame %d of the script, %s; held are %v", p.next, p.cut.Script[p.next], slices.Collect(maps.Keys(p.held)))
}

// Release makes frames cross in the order of arrival, without the script.
func (p *Tap) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = nil
	p.changed.Broadcast()
}

// Close closes all connections, and waits until all goroutines have returned. Close the client first, so that it does
// not dial again.
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

// cross waits for the turn of a frame and forwards it, or reports that the frame is lost.
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
		p.perform(f.Crossing)
		if l.dead {
			return true, nil
		}
	default:
		p.next++
	}
	p.crossed[f.Crossing]++
	p.acked += l.record(f)
	if p.recording {
		p.recorded = append(p.recorded, f.Crossing)
	}
	p.mu.Unlock()
	defer p.mu.Lock()
	return false, pass()
}

// perform executes the cut. It unlocks p.mu temporarily.
func (p *Tap) perform(before Crossing) {
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
			l.waitProcessed()
		}
		l.closeWrite()
	}
	if c.Then != nil {
		c.Then()
	}
	close(done)
}
