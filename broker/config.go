package broker

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/session"
	"github.com/reprisemq/reprise/internal/vhost"
)

// The default user, who is RabbitMQ's.
const (
	defaultUser     = "guest"
	defaultPassword = "guest"
)

// Config configures a broker. The zero value is a good one for one machine.
type Config struct {
	// Users holds passwords by user name. Default: the user guest with the password guest, who gets in from this machine
	// only, see [Broker.Serve].
	Users map[string]string

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
}

// complete fills in the defaults.
func (c Config) complete() (Config, error) {
	if c.Users == nil {
		c.Users = map[string]string{defaultUser: defaultPassword}
	}
	if c.Logger == nil {
		c.Logger = discard
	}
	switch {
	case c.Heartbeat == 0:
		c.Heartbeat = time.Minute
	case c.Heartbeat < 0:
		c.Heartbeat = 0
	}
	if c.FrameMax == 0 {
		c.FrameMax = 131072
	}
	if c.ChannelMax == 0 {
		c.ChannelMax = 2047
	}
	if c.MaxMessageSize == 0 {
		c.MaxMessageSize = 16 << 20
	}
	if _, unnamed := c.Users[""]; unnamed {
		return c, errors.New(`broker: Config.Users[""]: a user needs a name`)
	}
	switch {
	case c.Heartbeat%time.Second != 0 || c.Heartbeat > 65535*time.Second:
		return c, fmt.Errorf("broker: Config.Heartbeat is %v: give whole seconds, 65535 at most, or a negative number for none", c.Heartbeat)
	case c.FrameMax < minFrameMax || c.FrameMax > maxFrameMax:
		return c, fmt.Errorf("broker: Config.FrameMax is %d: give %d to %d bytes", c.FrameMax, minFrameMax, maxFrameMax)
	case c.MaxMessageSize < 0:
		return c, fmt.Errorf("broker: Config.MaxMessageSize is %d: give a positive number of bytes", c.MaxMessageSize)
	}
	return c, nil
}

const (
	minFrameMax = 8192
	maxFrameMax = 16 << 20
)

func (c *Config) defaultPassword() bool { return c.Users[defaultUser] == defaultPassword }

func (c *Config) authenticate(user, password string) bool {
	want, known := c.Users[user]
	// Hashes are of one length, so that the comparison takes the same time whatever was guessed.
	given, wanted := sha256.Sum256([]byte(password)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(given[:], wanted[:]) == 1 && known
}

func (b *Broker) sessionConfig() *session.Config {
	return &session.Config{
		VHost: func(name string) *vhost.VHost {
			if name == "/" {
				return b.vhost
			}
			return nil
		},
		Authenticate:     b.config.authenticate,
		ServerProperties: serverProperties(),
		ChannelMax:       b.config.ChannelMax,
		FrameMax:         b.config.FrameMax,
		Heartbeat:        b.config.Heartbeat,
		MaxMessageSize:   uint64(b.config.MaxMessageSize),
		Log:              b.config.Logger,
	}
}

// serverProperties is how the broker presents itself. Clients switch features on by the product, the version and the
// capabilities, so these name the RabbitMQ whose behaviour they get; who it really is stands in the information.
func serverProperties() amqpwire.Table {
	var capabilities amqpwire.Table
	for _, name := range []string{
		"publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
		"authentication_failure_close", "per_consumer_qos",
	} {
		capabilities = append(capabilities, amqpwire.Field{Name: name, Value: true})
	}
	return amqpwire.Table{
		{Name: "capabilities", Value: capabilities},
		{Name: "product", Value: "RabbitMQ"},
		{Name: "version", Value: "4.3.6"},
		{Name: "platform", Value: runtime.Version()},
		{Name: "cluster_name", Value: "reprise@localhost"},
		{Name: "information", Value: "Reprise, an embedded broker that does as this version of RabbitMQ does"},
	}
}
