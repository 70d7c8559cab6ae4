package broker

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/management"
	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/session"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Config configures a broker. The zero value is a good one for one machine.
type Config struct {
	// Users holds passwords by user name. With a Store, others may be there already. Default: the user guest with the
	// password guest, unless Definitions have users or the data directory is not a new one. That login, which everybody
	// knows, is accepted from this machine only.
	Users map[string]string

	// TemporaryUsers are as Users, but get in for the life of this process only: the Store does not keep them.
	TemporaryUsers map[string]string

	// Definitions are what to begin with, in the format of RabbitMQ's definitions files: users, virtual hosts, permissions,
	// queues, exchanges and bindings. What is in them that the broker has not, such as a policy, is an error.
	Definitions []byte

	// Logger is told of connections and of what clients do wrong. Default: nothing is logged.
	Logger *slog.Logger

	// Heartbeat is the interval proposed to clients: a connection that is silent for two and a half of them is cut.
	// In whole seconds; negative: none. Default: 60 s.
	Heartbeat time.Duration

	// FrameMax is the largest frame in bytes, 8192 at least. Default: 131072.
	FrameMax uint32

	// ChannelMax is how many channels a connection may have open. Default: 2047.
	ChannelMax uint16

	// MaxMessageSize is the largest message body in bytes. Default: 16 MiB.
	MaxMessageSize int

	// Store keeps the broker's state: virtual hosts, users, permissions, durable queues and exchanges, and persistent
	// messages. To keep it in a directory, import package broker/disk and set disk.Dir("/var/lib/app"). New returns
	// [ErrInUse], [ErrFormat] or [ErrDamaged] if it cannot be used; docs/durability.md describes what is kept, and when.
	// Default: none, and everything is in memory.
	Store Store

	// DiskLimit is how many bytes there must be free where the Store is. With less, connections that publish are blocked.
	// Default: 256 MiB.
	DiskLimit int64

	// MemoryLimit is how many bytes of messages there may be in all queues. Beyond it connections that publish are
	// blocked, which they are told by connection.blocked, until there is a tenth less. With a Store only messages count
	// that are in memory, and 2 GiB is the most. Default: 1 GiB.
	MemoryLimit int64

	// MessageCache is how many bytes of messages are kept in memory although they are on disk, where Store is set.
	// Beyond it queues let go of all but those that are next. Default: 8 MiB.
	MessageCache int64

	// ConnectionMemoryLimit is how many bytes a connection may make the broker keep beside messages in queues: consumers with
	// their arguments, messages that are not complete or not committed, exclusive queues, what the client does not read, and
	// the like. A connection that goes beyond it is closed with the error 506, RESOURCE_ERROR. At least twice MaxMessageSize:
	// a connection may publish a message while it reads another one.
	// Default: 64 MiB, or four times MaxMessageSize if that is more.
	ConnectionMemoryLimit int64

	// TotalConnectionMemoryLimit is how many bytes all connections may make the broker keep in this way. Beyond it the one
	// that keeps the most is closed. Not below ConnectionMemoryLimit, if both are set.
	// Default: 512 MiB, or eight times ConnectionMemoryLimit if that is more.
	TotalConnectionMemoryLimit int64

	// TopologyMemoryLimit is how many bytes of memory queues, exchanges and bindings may take in all virtual hosts, without
	// messages, and without exclusive queues. Declaring more is a channel error. What the Store has is always loaded.
	// Default: 512 MiB.
	TopologyMemoryLimit int64

	// MaxConnections is how many connections there may be; more are closed at once. Default: no limit.
	MaxConnections int

	// MaxQueues is how many queues a virtual host may have; declaring more is a channel error. Default: no limit.
	MaxQueues int

	// CertificateUser returns the user that a verified client certificate stands for, when a client on a TLS listener
	// chooses the mechanism EXTERNAL. The user must exist. Default: the certificate's common name.
	CertificateUser func(*x509.Certificate) string
}

// complete fills in the defaults.
func (c Config) complete() (Config, error) {
	c.Logger = cmp.Or(c.Logger, discard)
	switch {
	case c.Heartbeat == 0:
		c.Heartbeat = time.Minute
	case c.Heartbeat < 0:
		c.Heartbeat = 0
	}
	c.FrameMax = cmp.Or(c.FrameMax, 131072)
	c.ChannelMax = cmp.Or(c.ChannelMax, 2047)
	c.MaxMessageSize = cmp.Or(c.MaxMessageSize, 16<<20)
	c.MemoryLimit = cmp.Or(c.MemoryLimit, 1<<30)
	if c.ConnectionMemoryLimit > 0 && c.TotalConnectionMemoryLimit > 0 && c.ConnectionMemoryLimit > c.TotalConnectionMemoryLimit {
		return c, fmt.Errorf("broker: Config.TotalConnectionMemoryLimit must be at least Config.ConnectionMemoryLimit, %d: got %d",
			c.ConnectionMemoryLimit, c.TotalConnectionMemoryLimit)
	}
	c.ConnectionMemoryLimit = cmp.Or(c.ConnectionMemoryLimit, max(64<<20, 4*int64(c.MaxMessageSize)))
	c.TotalConnectionMemoryLimit = cmp.Or(c.TotalConnectionMemoryLimit, max(512<<20, 8*c.ConnectionMemoryLimit))
	c.TopologyMemoryLimit = cmp.Or(c.TopologyMemoryLimit, 512<<20)
	c.DiskLimit = cmp.Or(c.DiskLimit, 256<<20)
	c.MessageCache = cmp.Or(c.MessageCache, 8<<20)
	if c.CertificateUser == nil {
		c.CertificateUser = func(certificate *x509.Certificate) string { return certificate.Subject.CommonName }
	}
	switch {
	case c.Heartbeat%time.Second != 0 || c.Heartbeat > 65535*time.Second:
		return c, fmt.Errorf("broker: Config.Heartbeat is %v: give whole seconds, 65535 at most, or a negative number for none", c.Heartbeat)
	case c.FrameMax < minFrameMax || c.FrameMax > maxFrameMax:
		return c, fmt.Errorf("broker: Config.FrameMax is %d: give %d to %d bytes", c.FrameMax, minFrameMax, maxFrameMax)
	case c.Store != nil && c.MemoryLimit > maxMemoryOnDisk:
		return c, fmt.Errorf("broker: Config.MemoryLimit is %d: give %d bytes at most with a Store, where messages that are "+
			"too many for memory wait on disk", c.MemoryLimit, int64(maxMemoryOnDisk))
	case c.MaxMessageSize < 0 || c.MemoryLimit < 0 || c.MessageCache < 0 || c.DiskLimit < 0 || c.MaxConnections < 0 || c.MaxQueues < 0,
		c.ConnectionMemoryLimit < 0, c.TotalConnectionMemoryLimit < 0, c.TopologyMemoryLimit < 0:
		return c, errors.New("broker: a limit in Config is negative: give a positive number, or none for the default")
	case c.ConnectionMemoryLimit < 2*int64(c.MaxMessageSize):
		return c, fmt.Errorf("broker: Config.ConnectionMemoryLimit must be at least %d, twice Config.MaxMessageSize: got %d "+
			"(or lower MaxMessageSize)", 2*c.MaxMessageSize, c.ConnectionMemoryLimit)
	}
	return c, nil
}

const (
	minFrameMax = 8192
	maxFrameMax = 16 << 20
	// maxMemoryOnDisk is what a commit of the store can hold, with much to spare: it may have to take all there is in memory.
	maxMemoryOnDisk = 2 << 30
)

func (c *Config) node(s store.Store) (*node.Node, error) {
	return node.New(node.Config{
		Log: c.Logger,
		Sessions: session.Config{
			CertificateUser:  c.CertificateUser,
			ServerProperties: serverProperties(),
			ChannelMax:       c.ChannelMax,
			FrameMax:         c.FrameMax,
			Heartbeat:        c.Heartbeat,
			MaxMessageSize:   uint64(c.MaxMessageSize),
		},
		MemoryLimit:      c.MemoryLimit,
		MaxConnections:   c.MaxConnections,
		MaxQueues:        c.MaxQueues,
		ConnectionMemory: c.ConnectionMemoryLimit,
		TotalMemory:      c.TotalConnectionMemoryLimit,
		TopologyMemory:   c.TopologyMemoryLimit,
		Store:            s,
		DiskLimit:        c.DiskLimit,
		Resident:         c.MessageCache,
	})
}

// addUsers lets in the users of the configuration, each to everything in the virtual host "/".
func (b *Broker) addUsers() error {
	users := b.config.Users
	if users == nil && !b.node.Begun() && len(b.node.Access.Users()) == 0 {
		users = map[string]string{access.DefaultUser: access.DefaultPassword}
	}
	for name, password := range users {
		u := access.User{Name: name, Hash: access.HashPassword(password), Tags: []string{"administrator"}}
		p := access.Permission{User: name, VHost: "/", Configure: ".*", Write: ".*", Read: ".*"}
		if err := errors.Join(b.node.Access.SetUser(u), b.node.Access.SetPermission(p)); err != nil {
			return fmt.Errorf("broker: Config.Users[%q]: %w", name, err)
		}
	}
	for name, password := range b.config.TemporaryUsers {
		u := access.User{Name: name, Hash: access.HashPassword(password), Tags: []string{"administrator"}}
		if err := b.node.Access.Lend(u, "/"); err != nil {
			return fmt.Errorf("broker: Config.TemporaryUsers[%q]: %w", name, err)
		}
	}
	return nil
}

// DefaultLogin reports whether the user guest gets in with the password guest, which everybody knows, whoever made that user.
func (b *Broker) DefaultLogin() bool {
	return b.node.Access.Authenticate(access.DefaultUser, access.DefaultPassword)
}

// serverProperties is how the broker presents itself. Clients switch features on by the product, the version and the
// capabilities, so these name the RabbitMQ whose behaviour they get; who it really is stands in the information.
func serverProperties() amqpwire.Table {
	var capabilities amqpwire.Table
	for _, name := range []string{
		"publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
		"connection.blocked", "consumer_priorities", "authentication_failure_close", "per_consumer_qos", "direct_reply_to",
	} {
		capabilities = append(capabilities, amqpwire.Field{Name: name, Value: true})
	}
	return amqpwire.Table{
		{Name: "capabilities", Value: capabilities},
		{Name: "product", Value: "RabbitMQ"},
		{Name: "version", Value: management.Version},
		{Name: "platform", Value: runtime.Version()},
		{Name: "cluster_name", Value: management.NodeName},
		{Name: "copyright", Value: "Copyright (c) the Reprise authors"},
		{Name: "information", Value: "Reprise, an embedded broker that does as this version of RabbitMQ does"},
	}
}
