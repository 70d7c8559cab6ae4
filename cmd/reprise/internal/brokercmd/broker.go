// Package brokercmd implements reprise broker: a broker, its backups and the check of its data.
package brokercmd

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/cmd/reprise/internal/dial"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/flags"
	"github.com/reprisemq/reprise/cmd/reprise/internal/localbroker"
	"github.com/reprisemq/reprise/cmd/reprise/internal/serve"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
)

// passwordVariable is the environment variable with the password of the broker's user.
const passwordVariable = "REPRISE_BROKER_PASSWORD"

// Command is reprise broker.
type Command struct {
	Run     runCmd     `cmd:"" default:"withargs" help:"Run a broker on this machine (the default)."`
	Backup  backupCmd  `cmd:"" help:"Back up the data of a broker. The broker may run."`
	Restore restoreCmd `cmd:"" help:"Create a data directory from a backup."`

	Check checkCmd `cmd:"" help:"Check the data of a stopped broker for damage."`
}

type runCmd struct {
	Listen                     string     `default:"127.0.0.1:5600" placeholder:"ADDR" help:"Address of the broker. Port 0 selects a free port. Default ${default}."`
	Data                       *string    `placeholder:"DIR" help:"Data directory for durable queues and messages. The broker creates a missing directory. Default: none, everything stays in memory."`
	Memory                     bool       `help:"Keep everything in memory, and do not warn that messages are lost when the process exits."`
	DiskLimit                  flags.Size `name:"disk-limit" placeholder:"SIZE" help:"Free space on the disk of --data below which the broker blocks publishers. Default 256MiB."`
	MaxMessageSize             flags.Size `name:"max-message-size" default:"16MiB" placeholder:"SIZE" help:"Maximum size of a message body: at most 512MiB. Default ${default}."`
	MemoryLimit                flags.Size `name:"memory-limit" default:"1GiB" placeholder:"SIZE" help:"Memory of messages above which the broker blocks publishers: at least --max-message-size, with --data at most 2GiB. Default ${default}."`
	ConnectionMemoryLimit      flags.Size `name:"connection-memory-limit" placeholder:"SIZE" help:"Memory of one connection, without the messages in queues, above which the broker closes the connection: at least twice --max-message-size. Default 64MiB, or four times --max-message-size if that is more."`
	TotalConnectionMemoryLimit flags.Size `name:"total-connection-memory-limit" placeholder:"SIZE" help:"Memory of all connections above which the broker closes the largest connection. Default 512MiB, or eight times --connection-memory-limit if that is more."`
	TopologyMemoryLimit        flags.Size `name:"topology-memory-limit" default:"512MiB" placeholder:"SIZE" help:"Memory of queues, exchanges and bindings above which the broker refuses declarations: at least 1MiB. Default ${default}."`
	Management                 string     `placeholder:"ADDR" help:"Address of the management HTTP API and of the metrics. Default: none."`
	Definitions                string     `placeholder:"FILE" help:"Definitions file of RabbitMQ. The broker adds its objects at each start. Default: none."`
	User                       string     `placeholder:"NAME" help:"Name of an administrator. Default: guest, which can connect only from localhost."`
	PasswordFile               string     `name:"password-file" placeholder:"FILE" help:"File with the user's password in its first line. Default: $REPRISE_BROKER_PASSWORD, else guest."`
	tlsFlags                   `group:"TLS:"`
	serve.LogFlags             `group:"Log:"`
}

// Help implements kong.HelpProvider.
func (Command) Help() string {
	return `The first line on stdout is the URL of the broker. The URL contains the password only if it is the default
password, guest.

With --memory and --management, a test moves the clock of TTLs and delays: POST /api/clock with {"advance": "4h"}.
GET returns its time. The response arrives when all that is due in the meantime has moved on.

Examples:
  reprise broker --data /var/lib/reprise
  reprise broker --memory --listen 127.0.0.1:0
  reprise broker --data data --listen 0.0.0.0:5672 \
      --user app --password-file /run/secrets/broker
  reprise broker --data data --listen 0.0.0.0:5671 --certfile cert.pem --keyfile key.pem \
      --user app --password-file /run/secrets/broker
  reprise broker --data data --definitions definitions.json --management 127.0.0.1:15672
  reprise broker backup --data /var/lib/reprise --to /backup/monday
  reprise broker restore --from /backup/monday --data /var/lib/reprise
  reprise broker check --data /var/lib/reprise
`
}

// Help returns the help of the parent command.
func (runCmd) Help() string { return Command{}.Help() }

// maxMessageSize is the maximum of --max-message-size.
const maxMessageSize = 512 << 20

// minTopologyMemory is the minimum of --topology-memory-limit.
const minTopologyMemory = 1 << 20

// checkLimits reports limits that are too low for the broker to work.
func (c *runCmd) checkLimits() error {
	for _, limit := range []struct {
		flag       string
		got, least flags.Size
		advice     string
	}{
		{"--memory-limit", c.MemoryLimit, c.MaxMessageSize, "the largest message has that size"},
		{"--connection-memory-limit", c.ConnectionMemoryLimit, 2 * c.MaxMessageSize, "a published and a delivered message take this much"},
		{"--topology-memory-limit", c.TopologyMemoryLimit, minTopologyMemory, "a queue takes some 1,500 bytes"},
		{"--total-connection-memory-limit", c.TotalConnectionMemoryLimit, cmp.Or(c.ConnectionMemoryLimit, max(64<<20, 4*c.MaxMessageSize)), "the limit of one connection; lower --connection-memory-limit, too"},
	} {
		if limit.got != 0 && limit.got < limit.least {
			return exit.Usagef("%s must be at least %v: got %v (%s)", limit.flag, limit.least, limit.got, limit.advice)
		}
	}
	if c.MaxMessageSize <= 0 || c.MaxMessageSize > maxMessageSize {
		return exit.Usagef("--max-message-size must be between 1 and %v: got %v", flags.Size(maxMessageSize), c.MaxMessageSize)
	}
	if c.DiskLimit != 0 && c.Data == nil {
		return exit.Usagef("--disk-limit requires --data DIR")
	}
	return nil
}

// Run runs a broker until a signal arrives.
func (c *runCmd) Run(streams terminal.IO, stop *serve.Signals) (err error) {
	if err := c.checkLimits(); err != nil {
		return err
	}
	data, err := c.dataDir()
	if err != nil {
		return err
	}
	user, password, err := c.credentials(streams)
	if err != nil {
		return err
	}
	secure, err := c.tlsFlags.config()
	if err != nil {
		return err
	}
	log := c.Logger(streams.Stderr)
	stop.Serve(log)
	config := broker.Config{
		Logger: log, DiskLimit: int64(c.DiskLimit), MemoryLimit: int64(c.MemoryLimit),
		ConnectionMemoryLimit: int64(c.ConnectionMemoryLimit), TotalConnectionMemoryLimit: int64(c.TotalConnectionMemoryLimit),
		TopologyMemoryLimit: int64(c.TopologyMemoryLimit), MaxMessageSize: int(c.MaxMessageSize),
	}
	if user != "" {
		config.Users = map[string]string{user: password}
	}
	if c.Definitions != "" {
		if config.Definitions, err = os.ReadFile(c.Definitions); err != nil {
			return exit.Usagef("--definitions: %w", err)
		}
	}
	b, err := localbroker.Start(data, config)
	if err != nil {
		return err
	}
	var served chan error // nil if the broker does not listen
	defer func() {
		if err = errors.Join(err, localbroker.Shutdown(b, served, stop)); err == nil {
			log.Info("stopped")
		}
	}()
	switch {
	case data != "":
		localbroker.LogData(b, data, log)
		defer localbroker.ServeControl(b, data, stop.Again, log)()
	case !c.Memory:
		log.Warn("messages are lost when this process exits (use --data DIR to keep them, or --memory to omit this warning)")
	}

	l, err := serve.Listen(c.Listen)
	if err != nil {
		return err
	}
	if err := c.private(b, "--listen "+c.Listen, l); err != nil {
		return err
	}
	web, err := c.serveManagement(b, secure, log)
	if err != nil {
		_ = l.Close()
		return err
	}
	defer web.Stop()
	if user == "" && b.DefaultLogin() {
		user, password = dial.Guest, dial.Guest
	}
	served = make(chan error, 1)
	go func() { served <- b.Serve(overTLS(l, secure)) }()
	if _, err := fmt.Fprintln(streams.Stdout, dial.URL(scheme("amqp", "amqps", secure), l.Addr(), user, password)); err != nil {
		return fmt.Errorf("cannot print the URL: %w", err)
	}
	select {
	case err := <-web.Failed:
		return err
	case err := <-served:
		served = nil
		return err
	case <-stop.Ctx.Done():
		log.Info("shutting down")
		return nil
	}
}

// private closes the listener and returns an error if other machines can reach the listener and the broker has the
// default login.
func (c *runCmd) private(b *broker.Broker, flag string, l net.Listener) error {
	if !b.DefaultLogin() || serve.Loopback(l.Addr()) {
		return nil
	}
	_ = l.Close()
	if c.User != "" && c.User != dial.Guest {
		data, _ := c.dataDir() // the default login comes from the data directory
		return exit.Usagef("%s is reachable from other machines, and user guest in %s has the default password: "+
			"delete that user with the management API, or listen on 127.0.0.1", flag, data)
	}
	return exit.Usagef("%s is reachable from other machines, and the password is the default: "+
		"add --user NAME and --password-file FILE, or listen on 127.0.0.1", flag)
}

// dataDir returns the data directory; "": none.
func (c *runCmd) dataDir() (string, error) {
	switch {
	case c.Data == nil:
		return "", nil
	case *c.Data == "":
		return "", exit.Usagef("--data must not be empty (pass a directory, or remove the flag to keep messages in memory)")
	case c.Memory:
		return "", exit.Usagef("--data and --memory exclude each other")
	}
	return *c.Data, nil
}

// credentials returns the configured user and password, or empty strings if none are configured.
func (c *runCmd) credentials(streams terminal.IO) (user, password string, err error) {
	password, given := streams.Lookup(passwordVariable)
	if c.PasswordFile != "" {
		if password, err = flags.FirstLine(c.PasswordFile); err != nil {
			return "", "", exit.Usagef("--password-file: %w", err)
		}
		given = true
	}
	switch {
	case given && password == "":
		return "", "", exit.Usagef("password must not be empty (write it into the first line of the --password-file, or set %s)", passwordVariable)
	case given && c.User == "":
		return dial.Guest, password, nil
	case given:
		return c.User, password, nil
	case c.User != "":
		return "", "", exit.Usagef("--user %s requires a password (use --password-file FILE, or set %s)", c.User, passwordVariable)
	}
	return "", "", nil
}

// serveManagement serves the management API of the broker, if it is configured.
func (c *runCmd) serveManagement(b *broker.Broker, secure *tls.Config, log *slog.Logger) (*serve.WebServer, error) {
	if c.Management == "" {
		return &serve.WebServer{}, nil
	}
	l, err := serve.Listen(c.Management)
	if err != nil {
		return nil, fmt.Errorf("--management: %w", err)
	}
	if err := c.private(b, "--management "+c.Management, l); err != nil {
		return nil, err
	}
	log.Info("serving the management API", "url", scheme("http", "https", secure)+"://"+serve.WebHost(l.Addr())+"/api/")
	return serve.Web("--management", overTLS(l, withoutClientCertificates(secure)), serve.ProgressDeadlines(b.Management()), log), nil
}
