package session

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// amqp09Header is the protocol header of AMQP 0-9 clients, for example Perl's AnyEvent::RabbitMQ and Net::AMQP. Like
// RabbitMQ, the broker serves these clients as AMQP 0-9-1 clients.
var amqp09Header = [8]byte{'A', 'M', 'Q', 'P', 1, 1, 0, 9}

// handshake handles a connection from the protocol header to connection.open-ok. If it returns an error, the caller closes
// the connection. By then, handshake has sent the error reply to the client, if any.
func (s *Session) handshake() error {
	// The deadline also applies to writes, because a client may start TLS and never read.
	_ = s.conn.SetDeadline(time.Now().Add(handshakeTimeout))
	header, err := s.in.ReadProtocolHeader()
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	if header != amqpwire.ProtocolHeader && header != amqp09Header {
		s.out.write(func(b []byte) []byte { return append(b, amqpwire.ProtocolHeader[:]...) })
		return s.refuse(fmt.Errorf("handshake: cannot accept protocol header %q (expected %q; the client uses another protocol, or TLS)",
			header, amqpwire.ProtocolHeader))
	}
	for _, step := range []func() error{s.authenticate, s.tune, s.open} {
		if err := step(); err != nil {
			return err
		}
	}
	return s.setTimeout(0)
}

// setTimeout sets a timeout for reads and writes, starting now. 0 removes the timeout.
func (s *Session) setTimeout(timeout time.Duration) error {
	deadline := time.Time{}
	if timeout > 0 {
		deadline = time.Now().Add(timeout)
	}
	err := s.conn.SetDeadline(deadline)
	if s.closing.Load() { // keep the deadline of a concurrent Shutdown
		err = s.conn.SetDeadline(time.Now().Add(closeTimeout))
	}
	return err
}

// refuse flushes the outbox before the connection is closed, and returns err.
func (s *Session) refuse(err error) error {
	_ = s.conn.SetWriteDeadline(time.Now().Add(closeTimeout))
	s.out.finish()
	<-s.out.done
	if tcp, ok := s.conn.(interface{ CloseWrite() error }); ok && tcp.CloseWrite() == nil {
		s.discard()
	}
	return err
}

// expect reads the method that the handshake requires next. It ignores heartbeats. If the client sends anything else,
// the broker closes the connection. It sends an error reply only if the required method is connection.open.
func (s *Session) expect(m amqpwire.Method) error {
	for {
		f, err := s.in.ReadFrame()
		if err != nil {
			return fmt.Errorf("handshake: waiting for %v: %w", m.ID(), err)
		}
		if f.Type == amqpwire.FrameHeartbeat && known(f) {
			continue
		}
		id, err := parseExpected(f, m)
		switch {
		case err == nil:
			return nil
		case m.ID() == amqpwire.IDConnectionOpen:
			return s.abort(err, id)
		}
		return s.refuse(fmt.Errorf("handshake: waiting for %v: %w", m.ID(), err))
	}
}

// parseExpected parses a method of the handshake. If it returns an error, the ID belongs in the error reply to the client.
func parseExpected(f amqpwire.Frame, m amqpwire.Method) (amqpwire.MethodID, error) {
	if !known(f) {
		return 0, unknownFrame(f)
	}
	if f.Type != amqpwire.FrameMethod || f.Channel != 0 {
		return 0, unexpectedFrame(f)
	}
	if id, _ := amqpwire.PeekMethodID(f.Payload); id != m.ID() {
		return id, exception.New(exception.ChannelError, "unexpected method in connection state opening")
	}
	_, id, err := parseMethod(f, func(payload []byte) (amqpwire.Method, error) { return m, amqpwire.Parse(payload[4:], m) })
	return id, err
}

// abort sends connection.close during the handshake.
func (s *Session) abort(err error, method amqpwire.MethodID) error {
	s.fail(asException(err), method)
	s.discard() // the client must close first, because it may treat an immediate close as a broken connection
	return fmt.Errorf("handshake: %w", err)
}

func (s *Session) authenticate() error {
	s.send(0, &amqpwire.ConnectionStart{
		VersionMajor: 0, VersionMinor: 9,
		ServerProperties: s.config.ServerProperties,
		Mechanisms:       s.mechanisms(),
		Locales:          "en_US",
	})
	var ok amqpwire.ConnectionStartOk
	if err := s.expect(&ok); err != nil {
		return err
	}
	s.mechanism = ok.Mechanism
	capabilities, _ := ok.ClientProperties.Get("capabilities")
	s.notifiesCancel = capable(capabilities, "consumer_cancel_notify")
	s.notifiesBlocked = capable(capabilities, "connection.blocked")
	notifiesRefusal := capable(capabilities, "authentication_failure_close")
	// The broker may delay a login. Until the login succeeds, the session keeps only the encoded properties, because decoded
	// properties can use more memory.
	properties, err := ok.ClientProperties.Append(nil)
	if err != nil {
		return s.refuse(fmt.Errorf("handshake: client properties: %w", err))
	}
	ok.ClientProperties = nil

	user, err := s.identify(ok.Mechanism, ok.Response)
	s.config.Stats.AMQPLogins.Count(err == nil)
	if err != nil {
		err = fmt.Errorf("handshake: %w", err)
		// Notify clients with the capability authentication_failure_close. Disconnect other clients without a reply, as the
		// specification requires, because they could treat the reply as a broken connection.
		if _, known := errors.AsType[refusal](err); known && notifiesRefusal {
			s.fail(exception.New(exception.AccessRefused, "Login was refused using authentication mechanism %s. "+
				"For details see the broker logfile.", ok.Mechanism), 0)
			s.discard()
			return err
		}
		return s.refuse(err)
	}
	s.user = user
	known, _ := s.config.Access.User(user)
	s.impersonator = slices.Contains(known.Tags, "impersonator")
	if s.clientProperties, err = amqpwire.ParseTable(properties); err != nil {
		return s.refuse(fmt.Errorf("handshake: client properties: %w", err))
	}
	s.identity.Add(s.clientProperties.Footprint())
	return nil
}

func capable(capabilities any, name string) bool {
	table, _ := capabilities.(amqpwire.Table)
	value, _ := table.Get(name)
	return value == true
}

func (s *Session) tune() error {
	s.send(0, &amqpwire.ConnectionTune{
		ChannelMax: s.config.ChannelMax,
		FrameMax:   s.config.FrameMax,
		Heartbeat:  uint16(s.config.Heartbeat / time.Second),
	})
	var ok amqpwire.ConnectionTuneOk
	if err := s.expect(&ok); err != nil {
		return err
	}
	// 0 requests no limit, and so exceeds the limit that the server offers. Like RabbitMQ, the broker closes the connection
	// without a reply, because the connection is not open yet and the client violates the protocol.
	switch {
	case ok.ChannelMax == 0 || ok.ChannelMax > s.config.ChannelMax:
		return fmt.Errorf("handshake: negotiated channel_max = %d is higher than the maximum allowed value (%d)",
			ok.ChannelMax, s.config.ChannelMax)
	case ok.FrameMax == 0 || ok.FrameMax > s.config.FrameMax:
		return fmt.Errorf("handshake: negotiated frame_max = %d is higher than the maximum allowed value (%d)",
			ok.FrameMax, s.config.FrameMax)
	case ok.FrameMax < minFrameMax:
		return fmt.Errorf("handshake: negotiated frame_max = %d is lower than the minimum allowed value (%d)",
			ok.FrameMax, minFrameMax)
	}
	s.channelMax, s.frameMax = ok.ChannelMax, ok.FrameMax
	s.heartbeat = time.Duration(ok.Heartbeat) * time.Second
	s.in.SetFrameMax(s.frameMax)
	return nil
}

// minFrameMax is RabbitMQ's minimum since 4.1. The minimum in the specification is 4096.
const minFrameMax = 8192

func (s *Session) open() error {
	var open amqpwire.ConnectionOpen
	if err := s.expect(&open); err != nil {
		return err
	}
	if err := s.count(open.VirtualHost); err != nil {
		return s.abort(err, open.ID())
	}
	host := s.config.VHost(open.VirtualHost)
	switch {
	case host == nil:
		return s.abort(exception.New(exception.NotAllowed, "vhost %s not found", open.VirtualHost), open.ID())
	case !s.config.Access.MayEnter(s.user, open.VirtualHost):
		return s.abort(exception.New(exception.NotAllowed,
			"access to vhost '%s' refused for user '%s'", open.VirtualHost, s.user), open.ID())
	}
	s.mu.Lock()
	s.vhost = host
	s.mu.Unlock()
	s.send(0, &amqpwire.ConnectionOpenOk{})
	return nil
}

// count counts the connection for its virtual host and its user. It returns an error if a limit is reached.
func (s *Session) count(vhost string) error {
	q := &s.config.Quotas
	if limit, ok := q.VHostConnections.Add(vhost); !ok {
		return exception.New(exception.NotAllowed, "access to vhost '%s' refused for user '%s': connection limit (%d) is reached",
			vhost, s.user, limit)
	}
	s.uncount = append(s.uncount, func() { q.VHostConnections.Remove(vhost) })
	if limit, ok := q.UserConnections.Add(s.user); !ok {
		return exception.New(exception.NotAllowed, "connection refused for user '%s': user connection limit (%d) is reached", s.user, limit)
	}
	s.uncount = append(s.uncount, func() { q.UserConnections.Remove(s.user) })
	return nil
}
