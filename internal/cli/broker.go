package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/reprisemq/reprise/broker"
)

// passwordVariable holds the password of the broker's user.
const passwordVariable = "REPRISE_BROKER_PASSWORD"

// The user RabbitMQ has by default. It gets in from this machine only.
const guest = "guest"

type brokerCmd struct {
	Listen       string `default:"127.0.0.1:5672" placeholder:"ADDR" help:"Address to listen on; port 0 takes any that is free. Default ${default}."`
	Memory       bool   `help:"Keep messages in memory only, and do not warn about it."`
	Management   string `placeholder:"ADDR" help:"Address to serve the management HTTP API and metrics on. Default: not at all."`
	Data         string `placeholder:"DIR" help:"Keep messages in a directory. Not in this version."`
	User         string `placeholder:"NAME" help:"The one user who may connect. Default guest, from this machine only."`
	PasswordFile string `name:"password-file" placeholder:"FILE" help:"File with the user's password in its first line; else REPRISE_BROKER_PASSWORD."`
	logFlags
}

// Help shows examples below the flags.
func (brokerCmd) Help() string {
	return `The first line on stdout is the URL of the broker. It has the user and password as long as
they are the ones everybody knows; another password is for the client to fill in.

Examples:
  reprise broker --memory
  reprise broker --memory --listen 127.0.0.1:0
  reprise broker --memory --listen 0.0.0.0:5672 --user app --password-file /run/secrets/broker
`
}

// Run runs a broker until a signal comes.
func (c *brokerCmd) Run(streams IO, stop *signals) error {
	if c.Data != "" {
		return usagef("--data: this version keeps messages in memory only; run without it, or use RabbitMQ where messages must survive a restart")
	}
	user, password, err := c.credentials(streams)
	if err != nil {
		return err
	}
	log := c.logger(streams.Stderr)
	if !c.Memory {
		log.Warn("messages are kept in memory: they are lost when this process ends (--memory says that you know)")
	}
	b, err := broker.New(broker.Config{Users: map[string]string{user: password}, Logger: log})
	if err != nil {
		return err
	}
	l, err := listen(c.Listen)
	if err != nil {
		return err
	}
	if password == guest && user == guest && !loopback(l.Addr()) {
		_ = l.Close()
		return usagef("--listen %s is reachable from other machines, and everybody knows the default password: "+
			"add --user NAME and --password-file FILE, or listen on 127.0.0.1", c.Listen)
	}
	web, err := c.serveManagement(b, log, password == guest && user == guest)
	if err != nil {
		_ = l.Close()
		return err
	}
	defer web.stop()
	served := make(chan error, 1)
	go func() { served <- b.Serve(l) }()
	if _, err := fmt.Fprintln(streams.Stdout, brokerURL(l.Addr(), user, password)); err != nil {
		return errors.Join(fmt.Errorf("cannot print the URL: %w", err), shutdown(b, served, stop))
	}
	select {
	case err := <-web.failed:
		return errors.Join(err, shutdown(b, served, stop))
	case err := <-served:
		return errors.Join(err, shutdown(b, nil, stop))
	case <-stop.ctx.Done():
		log.Info("shutting down")
		return shutdown(b, served, stop)
	}
}

// credentials are who may connect.
func (c *brokerCmd) credentials(streams IO) (user, password string, err error) {
	password, given := streams.Lookup(passwordVariable)
	if c.PasswordFile != "" {
		text, err := os.ReadFile(c.PasswordFile)
		if err != nil {
			return "", "", usagef("--password-file: %w", err)
		}
		password, _, _ = strings.Cut(string(text), "\n")
		password, given = strings.TrimSuffix(password, "\r"), true
	}
	switch {
	case given && password == "":
		return "", "", usagef("the password is empty: write one into the first line of the --password-file, or into %s", passwordVariable)
	case given && c.User == "":
		return guest, password, nil
	case given:
		return c.User, password, nil
	case c.User != "":
		return "", "", usagef("--user %s needs a password: add --password-file FILE, or set %s", c.User, passwordVariable)
	}
	return guest, guest, nil
}

// listen opens an address.
func listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		return l, nil
	}
	if _, ok := errors.AsType[*net.AddrError](err); ok {
		return nil, usagef("cannot listen on %q: write HOST:PORT, for instance 127.0.0.1:5672", addr)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	return nil, fmt.Errorf("cannot listen on %s: %w (is a broker running already? port 0 takes any that is free)", addr, err)
}

func loopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// brokerURL is what a client on this machine connects to. It ends with the port:
// that means the virtual host / to all clients, while a / behind it means the
// one with the empty name to some.
func brokerURL(a net.Addr, user, password string) string {
	u := url.URL{Scheme: "amqp", Host: a.String(), User: url.User(user)}
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		u.Host = net.JoinHostPort("localhost", fmt.Sprint(tcp.Port))
	}
	if user == guest && password == guest {
		u.User = url.UserPassword(user, password)
	}
	return u.String()
}

// shutdownTimeout is how long clients have to say good-bye.
const shutdownTimeout = 5 * time.Second

// shutdown ends a broker; a second signal cuts its connections.
func shutdown(b *broker.Broker, served <-chan error, stop *signals) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	go func() {
		select {
		case <-stop.again:
			cancel()
		case <-ctx.Done():
		}
	}()
	_ = b.Shutdown(ctx) // clients that do not answer are cut off, which is no failure of ours
	if served == nil {
		return nil
	}
	if err := <-served; !errors.Is(err, broker.ErrClosed) {
		return err
	}
	return nil
}
