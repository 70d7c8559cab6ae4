package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/internal/testhook"
)

// Server is the machine of the broker: a disk and a process that can stop and restart.
type Server struct {
	l    *Life
	Disk *Disk // nil: the broker stores messages in memory

	// turn is a channel and not a mutex, because a goroutine that waits for a mutex stops virtual time.
	turn chan struct{} // held during a start or stop of the broker

	mu      sync.Mutex
	broker  *broker.Broker // nil: the broker is down
	down    *Disturbance
	blocked bool
}

// brokerName is the name of the broker in disturbances; see Disturb.
const brokerName = "broker"

func newServer(l *Life) *Server {
	s := &Server{l: l, turn: make(chan struct{}, 1)}
	if l.Script.Shape.Disk {
		s.Disk = newDisk(l)
	}
	return s
}

const promiseStart = "a broker starts on its own data directory"

func (s *Server) begin() {
	if err := s.start(); err != nil {
		s.l.Broken(promiseStart, "%v", err)
	}
}

// start starts the broker.
func (s *Server) start() error {
	c := broker.Config{Logger: s.l.Logger("broker")}
	if s.Disk != nil {
		c.Store = s.Disk
	}
	b, err := broker.New(c)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broker = b
	s.blocked = false
	if s.down != nil {
		s.down.End()
		s.down = nil
	}
	return nil
}

// Broker returns the broker, or nil if it is down.
func (s *Server) Broker() *broker.Broker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broker
}

// Inside returns the inner API of the broker.
func (s *Server) Inside() (testhook.Broker, bool) {
	b := s.Broker()
	if b == nil {
		return nil, false
	}
	return testhook.Of(b), true
}

func (s *Server) serve(conn net.Conn) error {
	b, ok := s.Inside()
	if !ok {
		return errRefused
	}
	return b.Serve(conn)
}

// take marks the broker as down and returns it. It records a disturbance that lasts until the broker has restarted.
func (s *Server) take(why string) *broker.Broker {
	d := s.l.Disturb(brokerName, why)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.broker
	s.broker, s.down = nil, d
	return b
}

// outage starts a goroutine that stops the broker with the function end and restarts it after a while. If the broker
// is already down, outage does nothing.
func (s *Server) outage(why string, after time.Duration, end func(*broker.Broker)) {
	select {
	case s.turn <- struct{}{}:
	default:
		return // the broker is already down
	}
	b := s.take(why)
	if b == nil {
		<-s.turn
		return
	}
	s.l.Count(why + "-broker")
	s.l.Go(func() {
		defer func() { <-s.turn }()
		end(b)
		time.Sleep(after)
		if err := s.start(); err != nil {
			s.l.Broken(promiseStart, "after %s: %v", why, err)
		}
	})
}

const promiseStop = "a graceful shutdown succeeds"

// Stop shuts the broker down gracefully, within a time limit, and restarts it after a while.
func (s *Server) Stop(within, after time.Duration) {
	s.outage("stop", after, func(b *broker.Broker) { s.stop(b, within) })
}

// stop shuts the broker down. It returns false if the shutdown failed and the disk has had a fault.
func (s *Server) stop(b *broker.Broker, within time.Duration) (graceful bool) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err := b.Shutdown(ctx)
	switch {
	case err == nil || err.Error() == context.DeadlineExceeded.Error():
	case s.Disk != nil && s.Disk.running().hadFault():
		// The broker stopped like a crashed process. Its writes are on the disk, and its goroutines never return.
		s.Disk.abandon()
		s.l.leaks.Store(true)
		s.l.Count("stop-broker on a bad disk")
		return false
	default:
		s.l.Broken(promiseStop, "Shutdown: %v", err)
	}
	return true
}

// Crash stops the broker as if its machine had crashed, and restarts it after a while. It does nothing for an in-memory
// broker.
func (s *Server) Crash(step Step) {
	if s.Disk == nil {
		return
	}
	s.outage("crash", step.For, func(b *broker.Broker) { s.crash(b, step) })
}

func (s *Server) crash(b *broker.Broker, step Step) {
	for _, k := range s.l.Network.Links("") { // before the broker can send further confirms
		k.sever()
	}
	bad := s.Disk.running().hadFault()
	s.Disk.cutPower(step)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := b.Shutdown(ctx); err != nil && bad { // no connection remains that could receive a reply
		s.l.leaks.Store(true)
	}
}

// crashInCompaction crashes the broker within 30 s, at a random time of a compaction.
func (s *Server) crashInCompaction(step Step) {
	const most, interval = 30 * time.Second, 20 * time.Millisecond
	wait := upTo(step.Random(), s.Disk.compaction)
	for range most / interval {
		if time.Sleep(interval); s.Broker() == nil || !s.Disk.running().isCompacting() {
			continue
		}
		if wait -= interval; wait <= 0 {
			s.l.Count("crash-in-compaction")
			s.Crash(step)
			return
		}
	}
}

// Block blocks or unblocks publishers, as a memory alarm does.
func (s *Server) Block(blocked bool) {
	s.mu.Lock()
	change := s.broker != nil && s.blocked != blocked
	if change {
		s.blocked = blocked
	}
	b := s.broker
	s.mu.Unlock()
	if change {
		testhook.Of(b).Block(blocked)
	}
}

// heal removes the faults of the disk, waits until the broker is up, and unblocks publishers.
func (s *Server) heal() {
	if s.Disk != nil {
		if fs := s.Disk.running(); fs != nil {
			fs.release()
		}
	}
	for broken := true; broken; time.Sleep(time.Second) {
		s.turn <- struct{}{} // wait until the broker is up
		<-s.turn
		broken = s.Disk != nil && s.Disk.running().failing()
	}
	s.Block(false)
}

// busy returns descriptions of the queues whose messages still have to move.
func (s *Server) busy() (all []string) {
	b, ok := s.Inside()
	if !ok {
		return []string{"the broker is down"}
	}
	for _, q := range b.Queues() {
		final := strings.HasSuffix(q.Name, "failed") && q.Consumers == 0
		if strings.HasSuffix(q.Name, ".held") {
			q.Unacked = max(0, q.Unacked-2) // the owner of a partition keeps its marker and its proof
		}
		if q.Unacked+q.Delayed+q.Dead > 0 || q.Leaving || q.Ready > 0 && !final {
			all = append(all, fmt.Sprintf("queue %s: %d ready, %d unacked, %d delayed, %d dead letters, %d consumers", q.Name, q.Ready, q.Unacked, q.Delayed, q.Dead, q.Consumers))
		}
	}
	return all
}

const (
	promiseMemory = "a broker without messages and connections uses no accounted memory"
	promiseCheck  = "a data directory has no damage after a graceful shutdown"
)

// end shuts the broker down gracefully and checks its data directory.
func (s *Server) end() {
	b := s.Broker()
	if b == nil {
		return
	}
	n := testhook.Of(b).(interface{ Node() *node.Node }).Node()
	if used := n.Memory.Used(); used != 0 && s.l.Book.drained {
		s.l.Broken(promiseMemory, "accounted memory: got %d bytes, want 0 (%d connections; queues: %v)", used, len(n.Sessions()), b.Queues())
	}
	s.stop(b, time.Hour)
	if s.Disk == nil {
		return
	}
	report, err := diskstore.Check(diskstore.Options{Dir: dataDir, Log: s.l.Logger("check"), FS: s.Disk.FS()})
	if err != nil {
		s.l.Broken(promiseCheck, "%v", err)
	}
	for _, d := range report.Damage {
		s.l.Broken(promiseCheck, "%v", d)
	}
}

func init() {
	RegisterAct(Act{
		Name: "stop-broker", Weight: 2,
		Draw: func(random *rand.Rand, shape Shape) []Step {
			if !shape.Disk {
				return nil
			}
			return []Step{{N: oneOf(random, 0, 5, 25, 5000, 30000), For: between(random, 10*time.Millisecond, 30*time.Minute)}}
		},
		Do: func(l *Life, s Step) { l.Server.Stop(time.Duration(s.N)*time.Millisecond, s.For) },
	})
	RegisterAct(Act{
		Name: "crash-broker", Weight: 2, Fault: true,
		Draw: func(random *rand.Rand, shape Shape) []Step {
			if !shape.Disk {
				return nil
			}
			return []Step{{For: between(random, 10*time.Millisecond, 30*time.Minute)}}
		},
		Do: func(l *Life, s Step) { l.Server.Crash(s) },
	})
	RegisterAct(Act{
		Name: "block", Weight: 2, Fault: true,
		Draw: func(random *rand.Rand, shape Shape) []Step {
			return []Step{{For: between(random, time.Second, 20*time.Minute)}}
		},
		Do: func(l *Life, s Step) {
			d := l.Disturb(brokerName, "blocked")
			l.Server.Block(true)
			l.Count("block")
			time.AfterFunc(s.For, func() {
				l.Server.Block(false)
				d.End()
			})
		},
	})
}
