package session

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"github.com/reprisemq/reprise/broker/internal/budget"
	"github.com/reprisemq/reprise/broker/internal/erlang"
	"github.com/reprisemq/reprise/broker/internal/exception"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// frame handles one frame. It reports whether the closing handshake of the connection is complete.
func (s *Session) frame(f amqpwire.Frame) (done bool) {
	switch {
	case s.closing.Load() && (f.Type != amqpwire.FrameMethod || f.Channel != 0):
		return false
	case !known(f):
		s.raise(0, 0, unknownFrame(f))
		return false
	case f.Type == amqpwire.FrameHeartbeat && f.Channel == 0:
		return false
	case f.Type == amqpwire.FrameHeartbeat, f.Type != amqpwire.FrameMethod && f.Channel == 0:
		s.raise(0, 0, unexpectedFrame(f))
		return false
	case f.Channel == 0:
		return s.connectionFrame(f)
	}
	if method, err := s.channelFrame(f); err != nil && err != errUnanswered {
		s.raise(f.Channel, method, err)
	}
	return false
}

// raise reports an error to the client. It closes the channel, or the connection if the error is a hard error or the
// channel is not open.
func (s *Session) raise(id uint16, method amqpwire.MethodID, err error) {
	s.processAcks() // process the acks that precede the error
	e := asException(err)
	ch := s.channels[id]
	if e.Code.Hard() || ch == nil {
		s.fail(e, method)
		return
	}
	level := slog.LevelWarn
	if e.Code == exception.NotFound && (method == amqpwire.IDQueueDeclare || method == amqpwire.IDExchangeDeclare) {
		level = slog.LevelDebug // clients use passive declarations to check for existence
	}
	s.log.Log(context.Background(), level, "closing a channel", "channel", id, "error", e, "method", method)
	s.confirms.flush()
	ch.release()
	ch.closing = true
	s.send(id, &amqpwire.ChannelClose{
		ReplyCode: uint16(e.Code), ReplyText: shortstr(e.Error()),
		ClassID: method.Class(), MethodID: method.Method(),
	})
}

func asException(err error) *exception.Error {
	if e, ok := errors.AsType[*exception.Error](err); ok {
		return e
	}
	return exception.New(exception.InternalError, "%v", err)
}

// connectionFrame handles a frame on channel 0.
func (s *Session) connectionFrame(f amqpwire.Frame) (done bool) {
	m, _, err := parseMethod(f, amqpwire.ParseMethod)
	if s.closing.Load() {
		switch m.(type) {
		case *amqpwire.ConnectionCloseOk:
			return true
		case *amqpwire.ConnectionClose: // both sides close at the same time
			s.send(0, &amqpwire.ConnectionCloseOk{})
		}
		return false
	}
	if err != nil {
		s.raise(0, 0, err)
		return false
	}
	switch m := m.(type) {
	case *amqpwire.ConnectionClose:
		s.log.Info("connection closed by the client", "code", m.ReplyCode, "text", m.ReplyText)
		s.conclude(slices.Collect(maps.Values(s.channels))...)
		s.release()
		s.send(0, &amqpwire.ConnectionCloseOk{})
		s.closing.Store(true)
		s.closeSent = true
		return true
	case *amqpwire.ConnectionUpdateSecret: // no effect, because secrets do not expire
		s.send(0, &amqpwire.ConnectionUpdateSecretOk{})
	default:
		s.fail(exception.New(exception.ChannelError, "unexpected method in connection state running"), m.ID())
	}
	return false
}

// channel returns the channel with the given number, or nil. It caches the last channel, because most frames belong to the
// same channel as the previous frame.
func (s *Session) channel(id uint16) *channel {
	if s.last == nil || s.last.id != id {
		s.last.trimRouteCache()
		s.last = s.channels[id]
	}
	return s.last
}

// drop removes a channel from the session.
func (s *Session) drop(ch *channel) {
	s.account.Give(budget.Channels, channelSize)
	s.config.Quotas.UserChannels.Remove(s.user)
	delete(s.channels, ch.id)
	s.last = nil
}

// channelFrame handles a frame on a channel other than 0. If it returns an error for the client, it also returns the method
// that caused the error.
func (s *Session) channelFrame(f amqpwire.Frame) (amqpwire.MethodID, error) {
	ch := s.channel(f.Channel)
	if ch != nil && ch.closing {
		return s.awaitClose(ch, f)
	}
	if ch != nil && ch.content.expected() {
		return amqpwire.IDBasicPublish, ch.contentFrame(f)
	}
	parse := amqpwire.ParseMethod
	if ch != nil {
		parse = ch.parser.Parse
	}
	m, id, err := parseMethod(f, parse)
	switch {
	case err != nil:
	case ch == nil:
		err = s.unopened(f.Channel, m)
	default:
		err = ch.method(m)
	}
	return id, err
}

// unopened handles a method on a channel that is not open. Only channel.open is permitted.
func (s *Session) unopened(id uint16, m amqpwire.Method) error {
	switch m.(type) {
	case *amqpwire.ChannelOpen:
		if len(s.channels) >= int(s.channelMax) {
			return exception.New(exception.NotAllowed,
				"number of channels opened (%d) has reached the negotiated channel_max (%d)", len(s.channels), s.channelMax)
		}
		if limit, ok := s.config.Quotas.UserChannels.Add(s.user); !ok {
			return exception.New(exception.NotAllowed,
				"number of channels opened for user '%s' has reached the maximum allowed user limit of %d", s.user, limit)
		}
		s.channels[id] = newChannel(s, id)
		s.send(id, &amqpwire.ChannelOpenOk{})
	default:
		return exception.New(exception.ChannelError, "expected 'channel.open'")
	}
	return nil
}

// awaitClose handles a frame on a channel that the session is closing. It ignores most frames, because the client
// sent them before it read channel.close.
func (s *Session) awaitClose(ch *channel, f amqpwire.Frame) (amqpwire.MethodID, error) {
	if f.Type != amqpwire.FrameMethod {
		return 0, nil
	}
	m, id, err := parseMethod(f, amqpwire.ParseMethod)
	switch m.(type) {
	case *amqpwire.ChannelOpen:
		err = ch.method(m)
	case *amqpwire.ChannelCloseOk:
		s.drop(ch)
	case *amqpwire.ChannelClose: // both sides close at the same time; the reply of the client will follow
		s.send(ch.id, &amqpwire.ChannelCloseOk{})
	}
	return id, err
}

// parseMethod parses a method and returns its ID. If it returns an error, the ID belongs in the error reply to the client.
func parseMethod(f amqpwire.Frame, parse func(payload []byte) (amqpwire.Method, error)) (amqpwire.Method, amqpwire.MethodID, error) {
	if f.Type != amqpwire.FrameMethod {
		return nil, 0, exception.New(exception.UnexpectedFrame, "expected method frame, got non method frame instead")
	}
	id, _ := amqpwire.PeekMethodID(f.Payload)
	m, err := parse(f.Payload)
	switch {
	case err == nil:
		return m, id, nil
	case errors.Is(err, amqpwire.ErrUTF8):
		return nil, 0, exception.New(exception.FrameError, "Malformed UTF-8 in shortstr")
	case errors.Is(err, amqpwire.ErrMalformed):
		return nil, id, exception.New(exception.FrameError, "cannot decode %s", erlang.Octets(f.Payload[4:]))
	}
	return nil, 0, exception.New(exception.CommandInvalid, "unknown %v", id)
}

// known reports whether the type of a frame is known and the payload contains the fixed fields of that type.
func known(f amqpwire.Frame) bool {
	switch f.Type {
	case amqpwire.FrameMethod:
		return len(f.Payload) >= 4 // class and method
	case amqpwire.FrameHeader:
		return len(f.Payload) >= 12 // class, weight, and size of the body
	case amqpwire.FrameBody:
		return true
	case amqpwire.FrameHeartbeat:
		return len(f.Payload) == 0
	}
	return false
}

func unknownFrame(f amqpwire.Frame) error {
	return exception.New(exception.FrameError, "type %d, %s: unknown_frame", f.Type, snippet(f.Payload))
}

func unexpectedFrame(f amqpwire.Frame) error {
	return exception.New(exception.UnexpectedFrame, "type %d, %s", f.Type, snippet(f.Payload))
}

// frameError returns RabbitMQ's error for a malformed frame.
func frameError(e *amqpwire.FrameError) *exception.Error {
	if e.Reason == amqpwire.FrameTooLarge {
		return exception.New(exception.FrameError, "type %d, all octets = <<>>: {frame_too_large,%d,%d}", e.Type, e.Size, e.Max)
	}
	return exception.New(exception.FrameError, "type %d, %s: {invalid_frame_end_marker,%d}", e.Type, snippet(e.Payload), e.End)
}

// snippet formats the start of a payload as RabbitMQ does, as text if it is printable.
func snippet(payload []byte) string {
	if len(payload) > 16 {
		return "first 16 octets = " + erlang.Binary(payload[:16])
	}
	return "all octets = " + erlang.Binary(payload)
}
