// Package dial connects commands to a broker, and to its management API.
package dial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/cmd/reprise/internal/config"
	"github.com/reprisemq/reprise/cmd/reprise/internal/exit"
	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/retry"
)

// Broker connects to a broker, or to the embedded broker at its default address if rawURL is "". An invalid URL is a
// usage error. Other errors come from the library, which hides passwords.
func Broker(ctx context.Context, rawURL string, cfg *reprise.Config) (*reprise.Client, error) {
	if rawURL == "" {
		cfg.Dial = dialEmbedded
		client, err := reprise.Dial(ctx, DefaultURL, cfg)
		if err != nil {
			err = fmt.Errorf("%w (this is the embedded broker's default; use --url or REPRISE_URL for another broker)", err)
		}
		return client, err
	}
	if bad, ok := errors.AsType[*reprise.ConnectError](reprise.CheckURL(rawURL)); ok {
		return nil, exit.Usagef("%s", bad.Reason)
	}
	return reprise.Dial(ctx, rawURL, cfg)
}

// dialEmbedded connects to an embedded broker. A user who did not select a broker must not change the queues of another
// broker that listens at the default address.
func dialEmbedded(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write(amqpwire.ProtocolHeader[:]); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	var received bytes.Buffer
	frame, err := amqpwire.NewReader(io.TeeReader(conn, &received), 0).ReadFrame()
	greeted := &greetedConn{Conn: conn, received: io.MultiReader(&received, conn), header: len(amqpwire.ProtocolHeader)}
	if err != nil {
		return greeted, nil // the client reads the same data, and explains them
	}
	method, err := amqpwire.ParseMethod(frame.Payload)
	start, ok := method.(*amqpwire.ConnectionStart)
	if err != nil || !ok {
		return greeted, nil
	}
	if information, _ := start.ServerProperties.Get("information"); !strings.HasPrefix(fmt.Sprint(information), "Reprise") {
		_ = conn.Close()
		product, _ := start.ServerProperties.Get("product")
		version, _ := start.ServerProperties.Get("version")
		return nil, &reprise.ConnectError{Addr: addr, Reason: fmt.Sprintf("%.40v %.40v listens at this address, not the embedded broker", product, version)}
	}
	return greeted, nil
}

// greetedConn is a connection on which the protocol header has been sent, and the reply has been read.
type greetedConn struct {
	net.Conn
	received io.Reader
	header   int // number of bytes of the header that the client has not written
}

func (c *greetedConn) Read(p []byte) (int, error) { return c.received.Read(p) }

func (c *greetedConn) Write(p []byte) (int, error) {
	skip := min(c.header, len(p))
	c.header -= skip
	n, err := c.Conn.Write(p[skip:])
	return skip + n, err
}

// Within limits the time of a step, such as connecting.
func Within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("timed out after %s", timeout))
}

// CloseTimeout is the time that a command that runs until it is stopped gives its client to close its connections.
const CloseTimeout = 5 * time.Second

// HangUp closes a client. Connections that are still open after the timeout are closed when the process exits.
func HangUp(c *reprise.Client, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_ = c.Close(ctx)
}

// DefaultURL is the URL of the embedded broker with its default settings.
const DefaultURL = "amqp://guest:guest@" + config.DefaultListen

// Guest is RabbitMQ's default user. With the default password, the broker accepts this user only from this machine.
const Guest = "guest"

// Network returns the network for an address. An IPv4 address has the network tcp4, so that 0.0.0.0 does not include IPv6.
func Network(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		return "tcp4"
	}
	return "tcp"
}

// URL returns the URL for clients on this machine, without a user if none is known, and without a password
// unless it is the default. The URL ends with the port, which means the virtual host "/" to all clients. With a slash
// after the port, clients that follow the URI specification, such as librabbitmq, connect to the virtual host "".
func URL(scheme string, a net.Addr, user, password string) string {
	u := url.URL{Scheme: scheme, Host: a.String()}
	if user != "" {
		u.User = url.User(user)
	}
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		u.Host = net.JoinHostPort("localhost", fmt.Sprint(tcp.Port))
	}
	if user == Guest && password == Guest {
		u.User = url.UserPassword(user, password)
	}
	return u.String()
}

// Configured returns the URL of the broker of `reprise up`, or "" if the file does not specify it. For an embedded broker
// with users, it has the first of them.
func Configured(cfg *config.Config) string {
	if cfg.Broker != "" {
		return cfg.Broker
	}
	a, err := net.ResolveTCPAddr(Network(cfg.Listen.Addr), cfg.Listen.Addr)
	if err != nil || a.Port == 0 {
		return ""
	}
	scheme := "amqp"
	if cfg.Listen.CertFile != "" {
		scheme = "amqps"
	}
	if len(cfg.Listen.Users) == 0 {
		return URL(scheme, a, Guest, Guest)
	}
	u, err := url.Parse(URL(scheme, a, "", ""))
	if err != nil {
		return ""
	}
	u.User = url.UserPassword(cfg.Listen.Users[0].Name, cfg.Listen.Users[0].Value)
	return u.String()
}

// Waiting returns a logger that prints why a command waits. The reason replaces %s in format. The argument again
// is the minimum time between two lines.
func Waiting(w io.Writer, format string, again time.Duration) *slog.Logger {
	return retry.ReasonLogger(again, func(reason string) {
		fmt.Fprintf(w, "reprise: "+format+"\n", terminal.OneLine(reason))
	})
}
