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

// Config configures a broker. The zero value configures an in-memory broker with the user guest.
type Config struct {
	// Users maps user names to passwords. These users are administrators with all permissions in the virtual host "/".
	// The Store may contain further users. Default: the user guest with the password guest, unless Definitions contains
	// users or the data directory is not new. This login works only from the same machine.
	Users map[string]string

	// TemporaryUsers maps the names of additional administrators to passwords. Unlike Users, they are not saved in the
	// Store, and exist only until the process exits. Default: none.
	TemporaryUsers map[string]string

	// Definitions contains users, virtual hosts, permissions, queues, exchanges and bindings, in the format of
	// RabbitMQ's definitions files. New adds them to the state from the Store, if any. New returns an error for a
	// definition that the broker does not support, such as a stream.
	Definitions []byte

	// Logger logs connections and protocol errors of clients. Default: no logging.
	Logger *slog.Logger

	// Heartbeat is the interval that the broker proposes to clients. If the broker receives nothing from a connection
	// for two and a half intervals, it cuts the connection. Heartbeat must be a multiple of one second. A negative value
	// disables heartbeats. Default: 60 s.
	Heartbeat time.Duration

	// FrameMax is the maximum size of a frame in bytes, between 8192 and 16 MiB. Default: 131072.
	FrameMax uint32

	// ChannelMax is the maximum number of open channels on a connection. Default: 2047.
	ChannelMax uint16

	// MaxMessageSize is the maximum size of a message body in bytes, at most 512 MiB. Default: 16 MiB.
	MaxMessageSize int

	// Store saves the state of the broker: virtual hosts, users, permissions, durable queues, exchanges and bindings, and
	// persistent messages. To use a directory, import package broker/disk and set disk.Dir("/var/lib/app"). New returns an
	// error such as [ErrInUse], [ErrFormat] or [ErrDamaged] if it cannot use the directory. The file docs/durability.md
	// describes which data is saved, and when. Default: none; the broker keeps everything in memory.
	Store Store

	// DiskLimit is the minimum free space, in bytes, on the disk of the Store. While less space is free, the broker
	// blocks connections that publish. Default: 256 MiB.
	DiskLimit int64

	// MemoryLimit is the maximum size of the messages in all queues, in bytes. Above it, the broker blocks connections that
	// publish and notifies them with connection.blocked, until the size is 10% below the limit. With a Store, messages that
	// are only on disk do not count, and the limit must not exceed 2 GiB. Default: 1 GiB.
	MemoryLimit int64

	// MessageCache is the memory in bytes for messages that could also wait on disk. A queue whose messages use more than
	// all queues leave free keeps only its next messages in memory, so one queue uses at most half. Durable messages in a
	// queue without consumers use at most a seventeenth. MessageCache applies only with a Store. Default: an eighth of
	// MemoryLimit.
	MessageCache int64

	// ConnectionMemoryLimit is the maximum memory of a connection in bytes, not including the messages in queues. It
	// covers consumers and their arguments, incomplete and uncommitted messages, exclusive queues, data that the client
	// has not yet read, and similar state. If a connection exceeds the limit, the broker closes it with the error 506,
	// RESOURCE_ERROR. The limit must be at least twice MaxMessageSize, because a connection may publish one message
	// while it receives another. Default: 64 MiB, or four times MaxMessageSize if that is more.
	ConnectionMemoryLimit int64

	// TotalConnectionMemoryLimit is the maximum total memory of all connections, in bytes. It covers the same memory as
	// ConnectionMemoryLimit. Above it, the broker closes the connection that uses the most memory. If both limits are
	// set, TotalConnectionMemoryLimit must be at least ConnectionMemoryLimit. Default: 512 MiB, or eight times
	// ConnectionMemoryLimit if that is more.
	TotalConnectionMemoryLimit int64

	// TopologyMemoryLimit is the maximum total memory, in bytes, of the queues, exchanges and bindings in all virtual
	// hosts, not including messages and exclusive queues. Above it, the broker rejects declarations with a channel
	// error. On start, the broker loads all objects of the Store, even if they exceed the limit. Default: 512 MiB.
	TopologyMemoryLimit int64

	// MaxConnections is the maximum number of connections. The broker closes further connections immediately. Default: no
	// limit.
	MaxConnections int

	// MaxQueues is the maximum number of queues in a virtual host. The broker rejects further declarations with a channel
	// error. Default: no limit.
	MaxQueues int

	// CertificateUser returns the user name for a verified client certificate. The broker calls it when a client of a
	// TLS listener logs in with the mechanism EXTERNAL. The login fails unless this user exists. Default: a function
	// that returns the common name of the certificate.
	CertificateUser func(*x509.Certificate) string
}

// complete validates the configuration and sets the defaults.
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
	c.MessageCache = cmp.Or(c.MessageCache, c.MemoryLimit/8)
	if c.CertificateUser == nil {
		c.CertificateUser = func(certificate *x509.Certificate) string { return certificate.Subject.CommonName }
	}
	if field, n := c.negativeLimit(); n < 0 {
		return c, fmt.Errorf("broker: Config.%s must not be negative: got %d (0 means the default)", field, n)
	}
	switch {
	case c.Heartbeat%time.Second != 0 || c.Heartbeat > 65535*time.Second:
		return c, fmt.Errorf("broker: Config.Heartbeat must be in whole seconds, at most 65535: got %v (a negative number disables heartbeats)", c.Heartbeat)
	case c.FrameMax < minFrameMax || c.FrameMax > maxFrameMax:
		return c, fmt.Errorf("broker: Config.FrameMax must be between %d and %d bytes: got %d", minFrameMax, maxFrameMax, c.FrameMax)
	case c.Store != nil && c.MemoryLimit > maxMemoryOnDisk:
		return c, fmt.Errorf("broker: Config.MemoryLimit must be at most %d bytes with a Store: got %d (further messages wait on disk)", int64(maxMemoryOnDisk), c.MemoryLimit)
	case c.MaxMessageSize > maxMessageSize:
		return c, fmt.Errorf("broker: Config.MaxMessageSize must be at most %d bytes: got %d", maxMessageSize, c.MaxMessageSize)
	case c.ConnectionMemoryLimit < 2*int64(c.MaxMessageSize):
		return c, fmt.Errorf("broker: Config.ConnectionMemoryLimit must be at least %d, twice Config.MaxMessageSize: got %d "+
			"(or lower MaxMessageSize)", 2*c.MaxMessageSize, c.ConnectionMemoryLimit)
	}
	return c, nil
}

// negativeLimit returns the first negative limit and the name of its field, or "" and 0 if no limit is negative.
func (c *Config) negativeLimit() (field string, n int64) {
	for _, limit := range []struct {
		field string
		n     int64
	}{
		{"MaxMessageSize", int64(c.MaxMessageSize)},
		{"MemoryLimit", c.MemoryLimit},
		{"MessageCache", c.MessageCache},
		{"DiskLimit", c.DiskLimit},
		{"MaxConnections", int64(c.MaxConnections)},
		{"MaxQueues", int64(c.MaxQueues)},
		{"ConnectionMemoryLimit", c.ConnectionMemoryLimit},
		{"TotalConnectionMemoryLimit", c.TotalConnectionMemoryLimit},
		{"TopologyMemoryLimit", c.TopologyMemoryLimit},
	} {
		if limit.n < 0 {
			return limit.field, limit.n
		}
	}
	return "", 0
}

const (
	minFrameMax = 8192
	maxFrameMax = 16 << 20
	// maxMessageSize is RabbitMQ's maximum, above which a content header is malformed.
	maxMessageSize = 512 << 20
	// maxMemoryOnDisk is the maximum MemoryLimit with a Store. It is far below the maximum size of a commit, because a
	// single commit may have to contain all messages in memory.
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

// addUsers adds the configured users as administrators with all permissions in the virtual host "/".
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
		if err := b.node.Access.AddTemporary(u, "/"); err != nil {
			return fmt.Errorf("broker: Config.TemporaryUsers[%q]: %w", name, err)
		}
	}
	return nil
}

// DefaultLogin reports whether the user guest can log in with the well-known password guest, regardless of who created
// the user.
func (b *Broker) DefaultLogin() bool {
	return b.node.Access.Authenticate(access.DefaultUser, access.DefaultPassword)
}

// serverProperties returns the server properties for the handshake. Clients enable features according to the product,
// the version and the capabilities, so these properties describe the RabbitMQ version that the broker emulates. Only
// copyright and information name Reprise.
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
		{Name: "information", Value: "Reprise, an embedded broker that behaves like this version of RabbitMQ"},
	}
}
