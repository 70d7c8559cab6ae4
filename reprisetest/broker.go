package reprisetest

import (
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testhook"
	"github.com/reprisemq/reprise/topology"
)

// Broker is a broker for a test. It is safe for concurrent use. The queue names in the arguments of
// its methods refer to the virtual host "/".
type Broker struct {
	config        Config
	virtual       bool
	bubble        string
	server        *broker.Broker
	inside        testhook.Broker
	host          string // host of the URL
	login         *url.Userinfo
	events        events
	watchdog      *time.Timer
	limitExceeded atomic.Bool // the test exceeded Config.Limit
	dialled       atomic.Uint64

	// A channel and not a mutex, because a goroutine that waits for a mutex is not durably blocked in the sense of
	// testing/synctest, so the clock of the bubble would not advance.
	turn chan struct{} // held during synctest.Wait and the creation of own
	own  *reprise.Client

	mu         sync.Mutex // never held during a blocking call
	stirred    chan struct{}
	workers    []*Worker
	clients    []*reprise.Client
	conns      map[*conn]struct{}
	lost       map[place]time.Time // time at which a queue lost a consumer because the consumer's connection failed
	flights    map[flight]journey
	strategies map[string]topology.Strategy // strategies of workers, by queue
	refusing   time.Time                    // end of the period set by Refuse
	blocked    bool
	faults     [faultKinds][]*Fault
}

// ownUser is the user in the URL if Config.Broker has definitions or a store, but no users. It is also the name of the
// package's own client.
const ownUser = "reprisetest"

// start creates a broker. The caller must call end.
func (c Config) start(t TB) *Broker {
	t.Helper()
	virtual := inBubble()
	if err := c.Validate(); err != nil {
		t.Fatalf("%v", err)
	}
	c = c.withDefaults(virtual)
	b := &Broker{
		config: c, virtual: virtual, host: "memory",
		turn:    make(chan struct{}, 1),
		conns:   make(map[*conn]struct{}),
		lost:    make(map[place]time.Time),
		flights: make(map[flight]journey), strategies: make(map[string]topology.Strategy),
	}
	b.events.began = time.Now()
	config := c.Broker
	if config.Logger == nil {
		config.Logger = b.events.logger(slog.LevelWarn)
	}
	if config.Heartbeat == 0 && virtual {
		config.Heartbeat = heartbeat
	}
	b.login = url.UserPassword("guest", "guest")
	switch names := slices.Sorted(maps.Keys(config.Users)); {
	case len(names) > 0:
		b.login = url.UserPassword(names[0], config.Users[names[0]])
	case len(config.Definitions) > 0 || config.Store != nil:
		config.TemporaryUsers = maps.Clone(config.TemporaryUsers)
		if config.TemporaryUsers == nil {
			config.TemporaryUsers = make(map[string]string)
		}
		config.TemporaryUsers[ownUser] = ownUser
		b.login = url.UserPassword(ownUser, ownUser)
	}
	var err error
	if b.server, err = broker.New(config); err != nil {
		t.Fatalf("reprisetest: %v", err)
	}
	b.inside = testhook.Of(b.server)
	if virtual {
		b.bubble = bubble()
		b.watchdog = time.AfterFunc(c.Limit, b.giveUp)
	}
	return b
}

// URL returns the URL of the broker, for [reprise.Dial] and other clients. Unless [Listen] has started the broker,
// only [Broker.DialContext] can connect to it.
func (b *Broker) URL() string {
	return (&url.URL{Scheme: "amqp", User: b.login, Host: b.host}).String()
}

// Server returns the broker itself, for instance for its management API: b.Server().Management() is an
// http.Handler.
func (b *Broker) Server() *broker.Broker { return b.server }
