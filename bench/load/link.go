package load

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/reprisemq/reprise/bench/internal/wire"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// handler handles the frames that a channel receives.
type handler interface {
	// frame handles the frame f. The argument now is the time of clock at which f was received.
	frame(f amqpwire.Frame, now int64) error
	// flush is called before the link waits for more data from the broker.
	flush()
}

// link is a connection to the broker. Each call of conn.Write writes whole frames, so that any goroutine can write.
// Before run starts, call reads from the connection; afterwards, only run does.
type link struct {
	conn     net.Conn
	r        *amqpwire.Reader
	frameMax uint32
	channels []handler // indexed by channel number; channels[0] is nil
	later    *asyncWriter
}

// open connects to the broker and performs the AMQP handshake.
func open(o *Options) (*link, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, err
	}
	port := u.Port()
	if port == "" {
		port = "5672"
	}
	conn, err := o.Dial("tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, channels: make([]handler, 1), later: newAsyncWriter()}
	if l.r, err = wire.NewReader(conn); err == nil {
		err = l.handshake(u)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return l, nil
}

func (l *link) handshake(u *url.URL) error {
	if _, err := l.conn.Write(amqpwire.ProtocolHeader[:]); err != nil {
		return err
	}
	if err := l.await(0, &amqpwire.ConnectionStart{}); err != nil {
		return err
	}
	password, _ := u.User.Password()
	tune := &amqpwire.ConnectionTune{}
	if err := l.call(0, &amqpwire.ConnectionStartOk{
		ClientProperties: amqpwire.Table{{Name: "product", Value: "amqpload"}},
		Mechanism:        "PLAIN", Response: "\x00" + u.User.Username() + "\x00" + password, Locale: "en_US",
	}, tune); err != nil {
		return err
	}
	l.frameMax = tune.FrameMax
	// Disable heartbeats: the generator also measures brokers that are too busy to send them in time.
	if err := l.send(0, &amqpwire.ConnectionTuneOk{ChannelMax: tune.ChannelMax, FrameMax: tune.FrameMax}); err != nil {
		return err
	}
	vhost := strings.TrimPrefix(u.Path, "/")
	if vhost == "" {
		vhost = "/"
	}
	return l.call(0, &amqpwire.ConnectionOpen{VirtualHost: vhost}, &amqpwire.ConnectionOpenOk{})
}

// channel opens a channel and returns its number. The frames of the channel go to h.
func (l *link) channel(h handler) (uint16, error) {
	l.channels = append(l.channels, h)
	id := uint16(len(l.channels) - 1)
	return id, l.call(id, &amqpwire.ChannelOpen{}, &amqpwire.ChannelOpenOk{})
}

func (l *link) send(channel uint16, m amqpwire.Method) error {
	b, err := amqpwire.AppendMethodFrame(nil, channel, m)
	if err != nil {
		return err
	}
	_, err = l.conn.Write(b)
	return err
}

// call sends m and reads the reply into answer.
func (l *link) call(channel uint16, m, answer amqpwire.Method) error {
	if err := l.send(channel, m); err != nil {
		return fmt.Errorf("%v: %w", m.ID(), err)
	}
	if err := l.await(channel, answer); err != nil {
		return fmt.Errorf("%v: %w", m.ID(), err)
	}
	return nil
}

// await reads frames until it receives a method of the type of answer on the channel, parses that method into answer,
// and dispatches all frames before it.
func (l *link) await(channel uint16, answer amqpwire.Method) error {
	for {
		f, err := l.r.ReadFrame()
		if err != nil {
			return err
		}
		if f.Type == amqpwire.FrameMethod && f.Channel == channel {
			id, err := amqpwire.PeekMethodID(f.Payload)
			if err == nil && id == answer.ID() {
				return amqpwire.Parse(f.Payload[4:], answer)
			}
		}
		if _, err := l.dispatch(f, clock()); err != nil {
			return err
		}
	}
}

// run dispatches frames until the broker confirms that the connection is closed, or until an error occurs.
func (l *link) run() error {
	now := clock()
	for {
		waits := !l.r.Ready()
		if waits {
			for _, h := range l.channels[1:] {
				h.flush()
			}
		}
		f, err := l.r.ReadFrame()
		if err != nil {
			return err
		}
		if waits {
			now = clock() // all frames of a read have the same time
		}
		if closed, err := l.dispatch(f, now); closed || err != nil {
			return err
		}
	}
}

func (l *link) dispatch(f amqpwire.Frame, now int64) (closed bool, err error) {
	switch {
	case f.Channel == 0:
		return control(f)
	case int(f.Channel) >= len(l.channels) || l.channels[f.Channel] == nil:
		return false, fmt.Errorf("unexpected frame on channel %d, which is not open%s", f.Channel, reason(f))
	}
	return false, l.channels[f.Channel].frame(f, now)
}

// control handles the frames of channel 0. It ignores connection.blocked: writes block anyway while the broker does not
// read.
func control(f amqpwire.Frame) (closed bool, err error) {
	if f.Type != amqpwire.FrameMethod {
		return false, nil
	}
	switch id, _ := amqpwire.PeekMethodID(f.Payload); id {
	case amqpwire.IDConnectionCloseOk:
		return true, nil
	case amqpwire.IDConnectionBlocked, amqpwire.IDConnectionUnblocked:
		return false, nil
	}
	return false, errors.New("the broker closed the connection" + reason(f))
}

// reason describes an unexpected frame, as the suffix of an error message.
func reason(f amqpwire.Frame) string {
	if f.Type != amqpwire.FrameMethod {
		return fmt.Sprintf(": frame of type %d", f.Type)
	}
	m, err := amqpwire.ParseMethod(f.Payload)
	if err != nil {
		return fmt.Sprintf(": %v", err)
	}
	switch m := m.(type) {
	case *amqpwire.ConnectionClose:
		return fmt.Sprintf(": %d %s", m.ReplyCode, m.ReplyText)
	case *amqpwire.ChannelClose:
		return fmt.Sprintf(": %d %s", m.ReplyCode, m.ReplyText)
	}
	return fmt.Sprintf(": %v", m.ID())
}

// close sends connection.close after the buffered frames. When the broker replies, it has read all previous frames,
// and run returns.
func (l *link) close() error {
	l.later.wait()
	return l.send(0, &amqpwire.ConnectionClose{ReplyCode: 200, ReplyText: "done"})
}
