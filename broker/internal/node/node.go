// Package node is a broker's state, whoever looks at it: its virtual hosts, its users, its connections. AMQP sessions run
// on it, and the management API shows and changes it.
package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/alarm"
	"github.com/reprisemq/reprise/broker/internal/budget"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/registry"
	"github.com/reprisemq/reprise/broker/internal/session"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// ErrClosed is returned once the node is shut down.
var ErrClosed = errors.New("broker: shut down")

// Config configures a node.
type Config struct {
	Log      *slog.Logger
	Sessions session.Config // VHost, Access, Budget, Alarms, Store, Stats and Log are filled in by New

	// MemoryLimit is how many bytes of messages there may be before publishers are blocked.
	MemoryLimit int64
	// MaxConnections and MaxQueues (in each virtual host) limit their number; zero: no limit.
	MaxConnections int
	MaxQueues      int
	// ConnectionMemory, TotalMemory and TopologyMemory are how many bytes a connection, all connections and what outlives them
	// may make the node keep beside messages; zero: no limit.
	ConnectionMemory, TotalMemory, TopologyMemory int64

	// Store is where the node keeps what is to outlive it; nil: it is in memory only. Whoever opened it closes it, after
	// Shutdown.
	Store store.Store
	// DiskLimit is how many bytes there must be free on the disk for publishers not to be blocked.
	DiskLimit int64
	// Resident is how much memory messages may take that are in the store as well.
	Resident int64
}

// Node is a broker without listeners.
type Node struct {
	Access *access.Control
	Memory *queue.Meter
	// Connections is what connections make the node keep beside messages, and Topology what outlives them.
	Connections *budget.Connections
	Topology    *budget.Limit
	Disk        *Disk // nil: nothing is on disk
	Alarms      alarm.Set
	Stats       *stats.Node
	Started     time.Time

	config   Config
	sessions session.Config
	registry *registry.Registry
	begun    bool

	mu      sync.Mutex
	closed  bool
	vhosts  map[string]*vhost.VHost
	going   map[*vhost.VHost]struct{} // those that are being deleted: they may still read from the store
	live    map[*session.Session]struct{}
	running sync.WaitGroup // the sessions
	closing chan struct{}  // closed when closed is set
}

// New returns a node with what is in its store. A new one has the virtual host "/" and no users.
func New(config Config) (*Node, error) {
	n := &Node{
		Access:      access.New(),
		Memory:      queue.NewMeter(config.MemoryLimit),
		Connections: budget.NewConnections(orNone(config.ConnectionMemory), orNone(config.TotalMemory)),
		Topology:    budget.NewLimit(orNone(config.TopologyMemory)),
		Stats:       new(stats.Node),
		Started:     time.Now(),
		config:      config,
		sessions:    config.Sessions,
		vhosts:      make(map[string]*vhost.VHost),
		going:       make(map[*vhost.VHost]struct{}),
		live:        make(map[*session.Session]struct{}),
		closing:     make(chan struct{}),
	}
	n.Alarms = alarm.Set{n.Memory.Alarm()}
	if config.Store != nil {
		if err := n.load(); err != nil {
			return nil, err
		}
	}
	n.sessions.VHost = n.VHost
	n.sessions.Access = n.Access
	n.sessions.Alarms = n.Alarms
	n.sessions.Budget = n.Connections
	n.sessions.Store = config.Store
	n.sessions.Stats = n.Stats
	n.sessions.Log = config.Log
	if !n.begun {
		n.AddVHost("/")
		n.VHost("/").SetAbout(vhost.About{Description: "Default virtual host"})
	}
	return n, nil
}

func orNone(limit int64) int64 { return cmp.Or(limit, math.MaxInt64) }

// VHost returns the virtual host of that name, or nil.
func (n *Node) VHost(name string) *vhost.VHost {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.vhosts[name]
}

// VHosts returns the virtual hosts by name.
func (n *Node) VHosts() []*vhost.VHost {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.SortedFunc(maps.Values(n.vhosts), func(a, b *vhost.VHost) int { return cmp.Compare(a.Name(), b.Name()) })
}

// hosts returns all virtual hosts, also those that are being deleted: to close one of those waits for its end.
func (n *Node) hosts() []*vhost.VHost {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Values(n.vhosts)), maps.Keys(n.going))
}

// AddVHost makes sure that a virtual host exists. It reports whether it is a new one.
func (n *Node) AddVHost(name string) (added bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.vhosts[name] != nil {
		return false
	}
	n.vhosts[name] = vhost.New(name, n.vhostConfig())
	return true
}

func (n *Node) vhostConfig() vhost.Config {
	return vhost.Config{
		Log: n.config.Log, Meter: n.Memory, MaxQueues: n.config.MaxQueues, Stats: n.Stats,
		Topology: n.Topology, Store: n.config.Store, Registry: n.registry, Resident: n.config.Resident,
	}
}

// DeleteVHost removes a virtual host with everything in it, and closes the connections to it. It reports whether there was
// one.
func (n *Node) DeleteVHost(name string) bool {
	host := n.takeVHost(name)
	if host == nil {
		return false
	}
	for _, s := range n.Sessions() {
		if s.Info().VHost == name {
			s.Shutdown("vhost '" + name + "' is deleted")
		}
	}
	host.Delete()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.going, host)
	return true
}

// takeVHost removes a virtual host and what is kept of it in one step: the next one of that name is another.
func (n *Node) takeVHost(name string) *vhost.VHost {
	n.mu.Lock()
	defer n.mu.Unlock()
	host := n.vhosts[name]
	if host == nil {
		return nil
	}
	delete(n.vhosts, name)
	n.going[host] = struct{}{}
	n.Access.DeleteVHost(name)
	host.Forget()
	return host
}

// Sessions returns the connections, the oldest first.
func (n *Node) Sessions() []*session.Session {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.SortedFunc(maps.Keys(n.live), func(a, b *session.Session) int {
		return cmp.Or(a.Connected().Compare(b.Connected()), cmp.Compare(a.Name(), b.Name()))
	})
}

// Serve runs a session on a connection, which it closes when there are too many.
func (n *Node) Serve(conn net.Conn) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		_ = conn.Close()
		return ErrClosed
	}
	if limit := n.config.MaxConnections; limit > 0 && len(n.live) >= limit {
		n.config.Log.Warn("connection refused: there are as many as may be", "peer", conn.RemoteAddr().String(), "limit", limit)
		_ = conn.Close()
		return nil
	}
	s := session.New(conn, &n.sessions)
	n.live[s] = struct{}{}
	n.Stats.Churn.ConnectionsCreated.Add(1)
	n.running.Go(func() {
		if err := s.Serve(); err != nil {
			n.config.Log.Log(context.Background(), level(err), "connection ended", "peer", conn.RemoteAddr().String(), "reason", err)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.live, s)
		n.Stats.Churn.ConnectionsClosed.Add(1)
	})
	return nil
}

// level returns the level at which the end of a connection is logged. Logins that are refused at once can be too many.
func level(err error) slog.Level {
	if refused, ok := errors.AsType[*access.WaitError](err); ok && !refused.Held {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// Wait waits, and reports whether the node is still open then.
func (n *Node) Wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-n.closing:
		return false
	}
}

// Shutdown closes all connections and waits until they have ended. When ctx ends first, it cuts them, and does not wait for
// a disk that does not answer.
func (n *Node) Shutdown(ctx context.Context) error {
	defer Hurry(ctx, n.config.Store, nil)()
	n.mu.Lock()
	if !n.closed {
		n.closed = true
		close(n.closing)
	}
	n.mu.Unlock()
	for _, s := range n.Sessions() {
		s.Shutdown("shutdown")
	}

	joined := make(chan struct{})
	go func() {
		n.running.Wait()
		close(joined)
	}()
	var err error
	select {
	case <-joined:
	case <-ctx.Done():
		err = context.Cause(ctx)
		for _, s := range n.Sessions() {
			s.Abort()
		}
		<-joined
	}
	for _, v := range n.hosts() {
		v.Close()
	}
	n.registry.Close()
	return err
}
