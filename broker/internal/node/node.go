// Package node manages the virtual hosts, the users and the connections of a broker. A node runs the AMQP sessions.
// The management API reads and changes the state of a node.
package node

import (
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/reprisemq/reprise/broker/internal/clock"
	"github.com/reprisemq/reprise/broker/internal/parameter"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/quota"
	"github.com/reprisemq/reprise/broker/internal/registry"
	"github.com/reprisemq/reprise/broker/internal/session"
	"github.com/reprisemq/reprise/broker/internal/stats"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/loglimit"
)

// ErrClosed is returned by [Node.Serve] after [Node.Shutdown] has been called.
var ErrClosed = errors.New("broker: shut down")

// ErrNoVHost is returned if a virtual host does not exist.
var ErrNoVHost = errors.New("virtual host not found")

// ErrNoExchange is returned if an exchange does not exist.
var ErrNoExchange = errors.New("exchange not found")

// Config configures a node.
type Config struct {
	Log      *slog.Logger
	Sessions session.Config // New sets the fields VHost, Access, Quotas, Budget, Alarms, Store, Stats, Log and Failures

	// MemoryLimit is the total size of messages, in bytes, above which the node blocks publishers.
	MemoryLimit int64
	// MaxConnections limits the number of connections, and MaxQueues limits the number of queues in each virtual host.
	// Zero means no limit.
	MaxConnections int
	MaxQueues      int
	// ConnectionMemory limits the memory of each connection, TotalMemory the total memory of all connections, and
	// TopologyMemory the memory of the objects that outlive connections. The limits are in bytes and do not cover
	// messages in queues. Zero means no limit.
	ConnectionMemory, TotalMemory, TopologyMemory int64

	// Store saves the durable state. It is nil for an in-memory node. Shutdown does not close the Store.
	Store store.Store
	// DiskLimit is the free disk space in bytes below which the node blocks publishers.
	DiskLimit int64
	// Resident is the memory in bytes for messages that could also wait in the store.
	Resident int64
}

// Node is a broker without listeners.
type Node struct {
	Access     *access.Control
	Parameters *parameter.Store
	// Quotas counts what the limits of virtual hosts and users limit.
	Quotas session.Quotas
	Memory *queue.Meter
	// Connections counts the memory of connections, and Topology the memory of objects that outlive connections.
	// Neither counts messages in queues.
	Connections *budget.Connections
	Topology    *budget.Limit
	Disk        *Disk        // nil for an in-memory node
	Clock       *clock.Clock // nil for a node with a store, whose delays use real time
	Alarms      alarm.Set
	Stats       *stats.Node
	Started     time.Time

	config   Config
	sessions session.Config
	registry *registry.Registry
	begun    bool

	// Clients can cause any number of these log messages. Each kind has a limit of its own, so that none hides another.
	loggedRefused, loggedUnchecked, loggedEnd loglimit.Limit

	mu       sync.Mutex
	closed   bool
	vhosts   map[string]*vhost.VHost
	deleting map[*vhost.VHost]struct{} // virtual hosts that are being deleted and may still read from the store
	live     map[*session.Session]struct{}
	running  sync.WaitGroup // goroutines that run sessions or monitor the store
	closing  chan struct{}  // closed when closed is set
}

// New returns a node with the state from config.Store. If the store is nil or new, the node has only the virtual host
// "/" and no users.
func New(config Config) (*Node, error) {
	n := &Node{
		Access:      access.New(),
		Parameters:  parameter.New(),
		Memory:      queue.NewMeter(config.MemoryLimit),
		Connections: budget.NewConnections(orNone(config.ConnectionMemory), orNone(config.TotalMemory)),
		Topology:    budget.NewLimit(orNone(config.TopologyMemory)),
		Stats:       new(stats.Node),
		Started:     time.Now(),
		config:      config,
		sessions:    config.Sessions,
		vhosts:      make(map[string]*vhost.VHost),
		deleting:    make(map[*vhost.VHost]struct{}),
		live:        make(map[*session.Session]struct{}),
		closing:     make(chan struct{}),

		loggedRefused:   loglimit.Limit{Burst: 10},
		loggedUnchecked: loglimit.Limit{Burst: 10},
		loggedEnd:       loglimit.Limit{Burst: 100},
	}
	n.Alarms = alarm.Set{n.Memory.Alarm()}
	if config.Store == nil {
		n.Clock = clock.New()
	} else {
		if err := n.load(); err != nil {
			return nil, err
		}
	}
	n.Quotas = session.Quotas{
		VHostConnections: &quota.Counter{Limit: quota.MaxConnections, Limits: n.Parameters.Limits},
		UserConnections:  &quota.Counter{Limit: quota.MaxConnections, Limits: n.Access.Limits},
		UserChannels:     &quota.Counter{Limit: quota.MaxChannels, Limits: n.Access.Limits},
	}
	n.sessions.Quotas = n.Quotas
	n.sessions.VHost = n.VHost
	n.sessions.Access = n.Access
	n.sessions.Alarms = n.Alarms
	n.sessions.Budget = n.Connections
	n.sessions.Store = config.Store
	n.sessions.Stats = n.Stats
	n.sessions.Log = config.Log
	n.sessions.Failures = &loglimit.Limit{Burst: 100}
	if !n.begun {
		n.AddVHost("/")
		n.VHost("/").SetAbout(vhost.About{Description: "Default virtual host"})
	}
	return n, nil
}

func orNone(limit int64) int64 { return cmp.Or(limit, math.MaxInt64) }

// VHost returns the virtual host with the given name, or nil.
func (n *Node) VHost(name string) *vhost.VHost {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.vhosts[name]
}

// VHosts returns the virtual hosts, sorted by name.
func (n *Node) VHosts() []*vhost.VHost {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.SortedFunc(maps.Values(n.vhosts), func(a, b *vhost.VHost) int { return cmp.Compare(a.Name(), b.Name()) })
}

// hosts returns all virtual hosts. It includes virtual hosts that are being deleted, because Shutdown must close them,
// too.
func (n *Node) hosts() []*vhost.VHost {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.AppendSeq(slices.Collect(maps.Values(n.vhosts)), maps.Keys(n.deleting))
}

// AddVHost creates a virtual host, unless it already exists or the node is shut down. It reports whether it created
// the virtual host.
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
		Log: n.config.Log, Clock: n.Clock, Meter: n.Memory, MaxQueues: n.config.MaxQueues, Limits: n.limits, Stats: n.Stats,
		Topology: n.Topology, ExchangeDeleted: n.Access.DeleteExchange, Store: n.config.Store, Registry: n.registry, Resident: n.config.Resident,
	}
}

// limits returns the limits of a virtual host. It reads n.Parameters when it is called, because load replaces them.
func (n *Node) limits(vhost string) quota.Limits { return n.Parameters.Limits(vhost) }

// SetParameter sets a parameter, and reports whether it existed. It returns [ErrNoVHost] if the parameter belongs to a
// missing virtual host.
func (n *Node) SetParameter(p parameter.Parameter) (existed bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !p.IsGlobal() && n.vhosts[p.VHost] == nil {
		return false, ErrNoVHost
	}
	_, existed = n.Parameters.Get(p.Key)
	return existed, n.Parameters.Set(p)
}

// ChangeLimits changes the limits of a virtual host. It returns [ErrNoVHost] if the virtual host does not exist.
func (n *Node) ChangeLimits(vhost string, change func(limits map[string]json.RawMessage)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.vhosts[vhost] == nil {
		return ErrNoVHost
	}
	key, limits := parameter.LimitsOf(vhost), make(map[string]json.RawMessage)
	value, _ := n.Parameters.Get(key)
	_ = json.Unmarshal(value, &limits) // an empty list contains no limits
	change(limits)
	text, err := json.Marshal(limits)
	if err != nil {
		return err
	}
	return n.Parameters.Set(parameter.Parameter{Key: key, Value: text})
}

// SetTopicPermission sets a topic permission. It returns [ErrNoVHost] or [ErrNoExchange] if the object does not exist.
func (n *Node) SetTopicPermission(p access.TopicPermission) error {
	host := n.VHost(p.VHost)
	if host == nil {
		return ErrNoVHost
	}
	err := error(ErrNoExchange)
	host.WithExchange(p.Exchange, func() { err = n.Access.SetTopicPermission(p) })
	return err
}

// DeleteVHost removes a virtual host and all its objects, and closes its connections. It reports whether the virtual
// host existed.
func (n *Node) DeleteVHost(name string) bool {
	host := n.removeVHost(name)
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
	delete(n.deleting, host)
	return true
}

// removeVHost removes a virtual host and its saved objects atomically, so that a new virtual host with the same name starts
// empty.
func (n *Node) removeVHost(name string) *vhost.VHost {
	n.mu.Lock()
	defer n.mu.Unlock()
	host := n.vhosts[name]
	if host == nil {
		return nil
	}
	delete(n.vhosts, name)
	n.deleting[host] = struct{}{}
	n.Access.DeleteVHost(name)
	n.Parameters.Delete(func(k parameter.Key) bool { return k.VHost == name && !k.IsGlobal() })
	host.Forget()
	return host
}

// Sessions returns the connections, oldest first.
func (n *Node) Sessions() []*session.Session {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.SortedFunc(maps.Keys(n.live), func(a, b *session.Session) int {
		return cmp.Or(a.Connected().Compare(b.Connected()), cmp.Compare(a.Name(), b.Name()))
	})
}

// Serve runs a session on conn in a new goroutine. If the limit MaxConnections is reached, Serve closes conn and
// returns nil.
func (n *Node) Serve(conn net.Conn) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		_ = conn.Close()
		return ErrClosed
	}
	if limit := n.config.MaxConnections; limit > 0 && len(n.live) >= limit {
		n.loggedRefused.Log(n.config.Log, slog.LevelWarn, "connection refused; connection limit reached", "peer", conn.RemoteAddr().String(), "limit", limit)
		_ = conn.Close()
		return nil
	}
	s := session.New(conn, &n.sessions)
	n.live[s] = struct{}{}
	n.Stats.Churn.ConnectionsCreated.Add(1)
	n.running.Go(func() {
		if err := s.Serve(); err != nil {
			n.logEnd(conn, err)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.live, s)
		n.Stats.Churn.ConnectionsClosed.Add(1)
	})
	return nil
}

// logEnd logs why a connection ended.
func (n *Node) logEnd(conn net.Conn, err error) {
	limit := &n.loggedEnd
	if unchecked, ok := errors.AsType[*access.WaitError](err); ok {
		if !unchecked.Held { // a client can cause any number of them in a second
			n.config.Log.Debug("connection ended", "peer", conn.RemoteAddr().String(), "reason", err)
			return
		}
		limit = &n.loggedUnchecked
	}
	limit.Log(n.config.Log, slog.LevelWarn, "connection ended", "peer", conn.RemoteAddr().String(), "reason", err)
}

// Wait waits for the duration d and returns true. If the node is shut down during the wait, Wait returns false.
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

// Shutdown closes all connections and waits until their sessions have returned. If ctx is done first, Shutdown cuts the
// connections and, if the disk does not respond, makes the store give up.
func (n *Node) Shutdown(ctx context.Context) error {
	defer LimitShutdown(ctx, n.config.Store, nil)()
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
