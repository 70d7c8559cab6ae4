package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

type counter = atomic.Int64

const frameMax = 131072

// client is a connection that implements the parts of the protocol that the attacks need.
type client struct {
	conn net.Conn
	in   *amqpwire.Reader
	sent *counter

	capabilities amqpwire.Table // additional client capabilities, which the broker stores
}

// dial opens a TCP connection and does not send any data.
func (t *target) dial(ctx context.Context) (*client, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	_ = stop // not needed: the connection is not used after the attack
	return &client{conn: conn, in: amqpwire.NewReader(conn, frameMax), sent: &t.sent}, nil
}

// connect opens a connection and logs in as guest.
func (t *target) connect(ctx context.Context) (*client, error) {
	return t.connectAs(ctx, "guest", "guest")
}

func (t *target) connectAs(ctx context.Context, user, password string) (*client, error) {
	return t.connectWith(ctx, user, password, nil)
}

func (t *target) connectWith(ctx context.Context, user, password string, capabilities amqpwire.Table) (*client, error) {
	c, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	c.capabilities = capabilities
	if err := c.handshake(user, password); err != nil {
		_ = c.conn.Close()
		return nil, err
	}
	t.keep(c.conn)
	return c, nil
}

// open opens a connection, logs in, and opens channel 1.
func (t *target) open(ctx context.Context) (*client, error) {
	c, err := t.connect(ctx)
	if err == nil {
		_, err = c.call(1, &amqpwire.ChannelOpen{})
	}
	return c, err
}

func (c *client) handshake(user, password string) error {
	if err := c.write(amqpwire.ProtocolHeader[:]); err != nil {
		return err
	}
	if _, err := c.receive(); err != nil {
		return err
	}
	capabilities := append(amqpwire.Table{{Name: "authentication_failure_close", Value: true}}, c.capabilities...)
	tune, err := c.call(0, &amqpwire.ConnectionStartOk{
		Mechanism: "PLAIN", Response: "\x00" + user + "\x00" + password, Locale: "en_US",
		ClientProperties: amqpwire.Table{{Name: "product", Value: "hostile"}, {Name: "capabilities", Value: capabilities}},
	})
	if err != nil {
		return err
	}
	offered, ok := tune.(*amqpwire.ConnectionTune)
	if !ok {
		return fmt.Errorf("unexpected method %v instead of connection.tune", tune.ID())
	}
	if err := c.send(0, &amqpwire.ConnectionTuneOk{ChannelMax: offered.ChannelMax, FrameMax: offered.FrameMax}); err != nil {
		return err
	}
	_, err = c.call(0, &amqpwire.ConnectionOpen{VirtualHost: "/"})
	return err
}

func (c *client) write(b []byte) error {
	n, err := c.conn.Write(b)
	c.sent.Add(int64(n))
	return err
}

func (c *client) send(channel uint16, m amqpwire.Method) error {
	b, err := amqpwire.AppendMethodFrame(nil, channel, m)
	if err != nil {
		return err
	}
	return c.write(b)
}

// call sends a method and returns the next method from the broker.
func (c *client) call(channel uint16, m amqpwire.Method) (amqpwire.Method, error) {
	if err := c.send(channel, m); err != nil {
		return nil, err
	}
	return c.receive()
}

// receive returns the next method. It returns an error if the method closes the connection or a channel.
func (c *client) receive() (amqpwire.Method, error) {
	for {
		f, err := c.in.ReadFrame()
		if err != nil {
			return nil, err
		}
		if f.Type != amqpwire.FrameMethod {
			continue
		}
		switch m, err := amqpwire.ParseMethod(f.Payload); m := m.(type) {
		case *amqpwire.ConnectionClose:
			return nil, fmt.Errorf("connection closed: %d %s", m.ReplyCode, m.ReplyText)
		case *amqpwire.ChannelClose:
			return nil, fmt.Errorf("channel closed: %d %s", m.ReplyCode, m.ReplyText)
		default:
			return m, err
		}
	}
}

// end reads until the broker closes the connection or a channel, and returns the reason.
func (c *client) end() error {
	for {
		if _, err := c.receive(); err != nil {
			return err
		}
	}
}

// over reports whether an attack has reached its time limit, because ctx is done or because err is a timeout of a
// network operation.
func over(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// outcome describes err, the error that ended the attack of client c. If the broker sent a reason for closing the
// connection or channel, the description contains the reason instead.
func (t *target) outcome(ctx context.Context, c *client, err error) string {
	if over(ctx, err) {
		return t.after("not stopped")
	}
	if c != nil && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) {
		if reason := c.end(); strings.Contains(reason.Error(), "closed:") {
			err = reason
		}
	}
	switch {
	case over(ctx, err):
		return t.after("not stopped")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return t.after("connection closed without a reason")
	}
	return t.after("%s", short(err))
}

// short returns an error message, truncated to fit into a table.
func short(err error) string {
	text := err.Error()
	if len(text) > 160 {
		text = text[:160] + "…"
	}
	return text
}

// publish returns the frames of a message.
func publish(channel uint16, key string, body []byte) []byte {
	b, _ := amqpwire.AppendMethodFrame(nil, channel, &amqpwire.BasicPublish{RoutingKey: key}) // cannot fail: the names are short enough
	b = amqpwire.AppendHeaderFrame(b, channel, 60, uint64(len(body)), []byte{0, 0})
	return amqpwire.AppendBodyFrames(b, channel, body, frameMax)
}
