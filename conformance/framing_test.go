package conformance

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/testkit"
)

// raw is a client that sends and reads single frames.
type raw struct {
	net.Conn
	t  *testing.T
	in *amqpwire.Reader
}

func dialRaw(t *testing.T, b testkit.Target) *raw {
	t.Helper()
	uri, err := amqp.ParseURI(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(timeout))
	return &raw{Conn: conn, t: t, in: amqpwire.NewReader(conn, 1<<20)}
}

func (r *raw) write(b []byte) {
	r.t.Helper()
	if _, err := r.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) send(channel uint16, m amqpwire.Method) {
	r.t.Helper()
	b, err := amqpwire.AppendMethodFrame(nil, channel, m)
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(b)
}

// frame sends a frame of any type, with any end byte.
func (r *raw) frame(kind byte, channel uint16, payload string, end byte) {
	r.t.Helper()
	b := binary.BigEndian.AppendUint16([]byte{kind}, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	r.write(append(append(b, payload...), end))
}

// expect reads the next method, which must have the type of want, and returns it. It skips heartbeats.
func expect[M amqpwire.Method](r *raw, want M) M {
	r.t.Helper()
	for {
		f, err := r.in.ReadFrame()
		if err != nil {
			r.t.Fatalf("cannot read %v: %v", want.ID(), err)
		}
		if f.Type == amqpwire.FrameHeartbeat {
			continue
		}
		m, err := amqpwire.ParseMethod(f.Payload)
		if err != nil {
			r.t.Fatalf("cannot read %v: %v", want.ID(), err)
		}
		got, ok := m.(M)
		if !ok {
			r.t.Fatalf("got %v %+v, want %v", m.ID(), m, want.ID())
		}
		return got
	}
}

// expectEOF waits until the server closes the connection without a frame.
func (r *raw) expectEOF() {
	r.t.Helper()
	if b, err := io.ReadAll(r.Conn); len(b) > 0 || err != nil && !isReset(err) {
		r.t.Errorf("got %q, %v; want the end of the connection", b, err)
	}
}

func isReset(err error) bool {
	_, ok := errors.AsType[*net.OpError](err)
	return ok && strings.Contains(err.Error(), "reset")
}

// start performs the handshake up to connection.start-ok.
func (r *raw) start(response string, capabilities amqpwire.Table) {
	r.t.Helper()
	r.write(amqpwire.ProtocolHeader[:])
	expect(r, &amqpwire.ConnectionStart{})
	r.send(0, &amqpwire.ConnectionStartOk{
		ClientProperties: amqpwire.Table{{Name: "capabilities", Value: capabilities}},
		Mechanism:        "PLAIN", Response: response, Locale: "en_US",
	})
}

// open performs the complete handshake and opens channel 1.
func (r *raw) open(channelMax uint16, heartbeat uint16) *raw {
	r.t.Helper()
	r.start("\x00guest\x00guest", nil)
	tune := expect(r, &amqpwire.ConnectionTune{})
	r.send(0, &amqpwire.ConnectionTuneOk{ChannelMax: channelMax, FrameMax: tune.FrameMax, Heartbeat: heartbeat})
	r.send(0, &amqpwire.ConnectionOpen{VirtualHost: "/"})
	expect(r, &amqpwire.ConnectionOpenOk{})
	r.send(1, &amqpwire.ChannelOpen{})
	expect(r, &amqpwire.ChannelOpenOk{})
	return r
}

func (r *raw) closed(code uint16, text string) {
	r.t.Helper()
	c := expect(r, &amqpwire.ConnectionClose{})
	if c.ReplyCode != code || c.ReplyText != text {
		r.t.Errorf("connection.close: got  %d %q\n                  want %d %q", c.ReplyCode, c.ReplyText, code, text)
	}
	// The write can fail, because the server may already have closed the connection after a framing error.
	b, err := amqpwire.AppendMethodFrame(nil, 0, &amqpwire.ConnectionCloseOk{})
	if err != nil {
		r.t.Fatal(err)
	}
	_, _ = r.Write(b)
}

func eachRaw(t *testing.T, test func(t *testing.T, b testkit.Target, r *raw)) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) { test(t, b, dialRaw(t, b)) })
}

func TestTuneProposal(t *testing.T) {
	eachRaw(t, func(t *testing.T, b testkit.Target, r *raw) {
		r.write(amqpwire.ProtocolHeader[:])
		start := expect(r, &amqpwire.ConnectionStart{})
		if start.VersionMajor != 0 || start.VersionMinor != 9 || !strings.Contains(start.Mechanisms, "PLAIN") ||
			!strings.Contains(start.Mechanisms, "AMQPLAIN") || start.Locales != "en_US" {
			t.Errorf("connection.start: got %+v, want version 0-9, PLAIN, AMQPLAIN and en_US", start)
		}
		if product, _ := start.ServerProperties.Get("product"); product != "RabbitMQ" {
			t.Errorf("product: got %v, want RabbitMQ", product)
		}
		r.send(0, &amqpwire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
		if tune := expect(r, &amqpwire.ConnectionTune{}); tune.ChannelMax != 2047 || tune.FrameMax != 131072 || tune.Heartbeat != 60 {
			t.Errorf("connection.tune: got %+v, want 2047 channels, frames of 131072 bytes, heartbeat 60", tune)
		}
	})
}

func TestWrongProtocolHeader(t *testing.T) {
	eachRaw(t, func(t *testing.T, b testkit.Target, r *raw) {
		r.write([]byte("GET / HTTP/1.1\r\n\r\n"))
		var answer [8]byte
		if _, err := io.ReadFull(r.Conn, answer[:]); err != nil {
			t.Fatal(err)
		}
		// RabbitMQ 4.0 and later reply with the header of AMQP 1.0, which the embedded broker does not support.
		if string(answer[:4]) != "AMQP" || !b.IsRabbitMQ && answer != amqpwire.ProtocolHeader {
			t.Errorf("protocol header: got %q, want AMQP", answer)
		}
		r.expectEOF()
	})
}

// If a client exceeds the proposed limits, the broker closes the connection without a reply. RabbitMQ does so only
// after a delay.
func TestTuning(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		var clients []*raw
		for _, ok := range []*amqpwire.ConnectionTuneOk{
			{ChannelMax: 2047, FrameMax: 200000},
			{ChannelMax: 2047, FrameMax: 0}, // 0 means no limit, and therefore exceeds the proposal
			{ChannelMax: 2047, FrameMax: 4095},
			{ChannelMax: 2048, FrameMax: 131072},
			{ChannelMax: 0, FrameMax: 131072},
		} {
			r := dialRaw(t, b)
			r.start("\x00guest\x00guest", nil)
			expect(r, &amqpwire.ConnectionTune{})
			r.send(0, ok)
			clients = append(clients, r)
		}
		for _, r := range clients {
			r.expectEOF()
		}
	})
}

func TestChannelMax(t *testing.T) {
	eachRaw(t, func(t *testing.T, _ testkit.Target, r *raw) {
		r.open(2, 0)
		r.send(9, &amqpwire.ChannelOpen{}) // the limit applies to the number of channels, not to channel numbers
		expect(r, &amqpwire.ChannelOpenOk{})
		r.send(2, &amqpwire.ChannelOpen{})
		r.closed(530, "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)")
	})
}

func TestWrongCredentials(t *testing.T) {
	eachRaw(t, func(t *testing.T, _ testkit.Target, r *raw) {
		r.start("\x00guest\x00wrong", amqpwire.Table{{Name: "authentication_failure_close", Value: true}})
		r.closed(403, "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.")
	})
	t.Run("client without authentication_failure_close", func(t *testing.T) {
		eachRaw(t, func(t *testing.T, _ testkit.Target, r *raw) {
			r.start("\x00nobody\x00guest", nil)
			r.expectEOF()
		})
	})
}

func TestAMQPLAIN(t *testing.T) {
	eachRaw(t, func(t *testing.T, _ testkit.Target, r *raw) {
		r.write(amqpwire.ProtocolHeader[:])
		expect(r, &amqpwire.ConnectionStart{})
		table, err := amqpwire.Table{{Name: "LOGIN", Value: "guest"}, {Name: "PASSWORD", Value: "guest"}}.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		r.send(0, &amqpwire.ConnectionStartOk{Mechanism: "AMQPLAIN", Response: string(table[4:]), Locale: "en_US"})
		expect(r, &amqpwire.ConnectionTune{})
	})
}

func TestUnknownVirtualHost(t *testing.T) {
	eachRaw(t, func(t *testing.T, _ testkit.Target, r *raw) {
		r.start("\x00guest\x00guest", nil)
		tune := expect(r, &amqpwire.ConnectionTune{})
		r.send(0, &amqpwire.ConnectionTuneOk{ChannelMax: tune.ChannelMax, FrameMax: tune.FrameMax})
		r.send(0, &amqpwire.ConnectionOpen{VirtualHost: "nosuch"})
		r.closed(530, "NOT_ALLOWED - vhost nosuch not found")
	})
}

func TestMalformedFrames(t *testing.T) {
	for name, test := range map[string]struct {
		break_ func(r *raw)
		code   uint16
		text   string
	}{
		"too large": {
			func(r *raw) { r.frame(3, 1, strings.Repeat("x", 200000), amqpwire.FrameEnd) },
			501, "FRAME_ERROR - type 3, all octets = <<>>: {frame_too_large,200000,131064}",
		},
		"wrong end": {
			func(r *raw) { r.frame(1, 1, "\x00\x14\x00\x0a\x00", 0) },
			501, "FRAME_ERROR - type 1, all octets = <<0,20,0,10,0>>: {invalid_frame_end_marker,0}",
		},
		"unknown type": {
			func(r *raw) { r.frame(7, 1, "\x01\x02\x03", amqpwire.FrameEnd) },
			501, "FRAME_ERROR - type 7, all octets = <<1,2,3>>: unknown_frame",
		},
		"method without a number": {
			func(r *raw) { r.frame(1, 1, "\x00\x3c", amqpwire.FrameEnd) },
			501, "FRAME_ERROR - type 1, all octets = <<0,60>>: unknown_frame",
		},
		"method cut short": {
			func(r *raw) { r.frame(1, 1, "\x00\x3c\x00\x0a\x00", amqpwire.FrameEnd) },
			501, "FRAME_ERROR - cannot decode <<0>>",
		},
		"name that is not UTF-8": {
			func(r *raw) { r.frame(1, 1, "\x00\x32\x00\x1e\x00\x00\x01\xff\x00", amqpwire.FrameEnd) },
			501, "FRAME_ERROR - Malformed UTF-8 in shortstr",
		},
		"heartbeat on a channel": {
			func(r *raw) { r.frame(8, 1, "", amqpwire.FrameEnd) },
			505, "UNEXPECTED_FRAME - type 8, all octets = <<>>",
		},
		"channel method on channel 0": {
			func(r *raw) { r.send(0, &amqpwire.ChannelOpen{}) },
			504, "CHANNEL_ERROR - unexpected method in connection state running",
		},
		"weight": {
			func(r *raw) {
				r.send(1, &amqpwire.BasicPublish{RoutingKey: "k"})
				r.frame(2, 1, "\x00\x3c\x00\x01"+strings.Repeat("\x00", 10), amqpwire.FrameEnd)
			},
			505, "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
		},
		"content without a method": {
			func(r *raw) { r.frame(3, 1, "body", amqpwire.FrameEnd) },
			505, "UNEXPECTED_FRAME - expected method frame, got non method frame instead",
		},
		"method in place of a header": {
			func(r *raw) {
				r.send(1, &amqpwire.BasicPublish{RoutingKey: "k"})
				r.send(1, &amqpwire.BasicPublish{RoutingKey: "k"})
			},
			505, "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead",
		},
		"header of another class": {
			func(r *raw) {
				r.send(1, &amqpwire.BasicPublish{RoutingKey: "k"})
				r.write(amqpwire.AppendHeaderFrame(nil, 1, 50, 4, []byte{0, 0}))
			},
			505, "UNEXPECTED_FRAME - expected content header for class 60, got one for class 50 instead",
		},
		"method in place of a body": {
			func(r *raw) {
				r.send(1, &amqpwire.BasicPublish{RoutingKey: "k"})
				r.write(amqpwire.AppendHeaderFrame(nil, 1, 60, 4, []byte{0, 0}))
				r.send(1, &amqpwire.BasicPublish{RoutingKey: "k"})
			},
			505, "UNEXPECTED_FRAME - expected content body, got non content body frame instead",
		},
		"channel that is not open": {
			func(r *raw) { r.send(5, &amqpwire.BasicQos{PrefetchCount: 1}) },
			504, "CHANNEL_ERROR - expected 'channel.open'",
		},
		"closing a channel that is not open": {
			func(r *raw) { r.send(5, &amqpwire.ChannelClose{}) },
			504, "CHANNEL_ERROR - expected 'channel.open'",
		},
		"method that servers send": {
			func(r *raw) { r.send(1, &amqpwire.BasicGetEmpty{}) },
			503, "COMMAND_INVALID - unimplemented method",
		},
		"channel opened twice": {
			func(r *raw) { r.send(1, &amqpwire.ChannelOpen{}) },
			504, "CHANNEL_ERROR - second 'channel.open' seen",
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachRaw(t, func(t *testing.T, b testkit.Target, r *raw) {
				bystander := connect(t, b)
				r.open(2047, 0)
				test.break_(r)
				r.closed(test.code, test.text)
				bystander.queue("alive", nil) // the broker still serves other clients
			})
		})
	}
}

func TestBodyLongerThanAnnounced(t *testing.T) {
	eachRaw(t, func(t *testing.T, b testkit.Target, r *raw) {
		if b.Version == "3.10" {
			return // 3.10 ignores the surplus
		}
		r.open(2047, 0)
		r.send(1, &amqpwire.BasicPublish{RoutingKey: "k"})
		r.write(amqpwire.AppendHeaderFrame(nil, 1, 60, 2, []byte{0, 0}))
		r.write(amqpwire.AppendBodyFrames(nil, 1, []byte("long"), 8192))
		r.closed(501, "FRAME_ERROR - content body frame exceeds remaining content size")
	})
}

// After a channel error, the broker ignores all frames on the channel until the client sends channel.close-ok.
func TestBrokerIgnoresFramesAfterChannelError(t *testing.T) {
	eachRaw(t, func(t *testing.T, b testkit.Target, r *raw) {
		c := connect(t, b)
		q := c.queue("q", nil)
		r.open(2047, 0)
		r.send(1, &amqpwire.QueuePurge{Queue: testkit.Name(t, "missing")})
		r.send(1, &amqpwire.BasicPublish{RoutingKey: q})
		r.write(amqpwire.AppendHeaderFrame(nil, 1, 60, 1, []byte{0, 0}))
		r.write(amqpwire.AppendBodyFrames(nil, 1, []byte("x"), 8192))
		r.send(1, &amqpwire.QueuePurge{Queue: testkit.Name(t, "missing")})
		if closed := expect(r, &amqpwire.ChannelClose{}); closed.ReplyCode != 404 || closed.ClassID != 50 || closed.MethodID != 30 {
			t.Errorf("channel.close: got %+v, want code 404 and method 50.30", closed)
		}
		r.send(1, &amqpwire.ChannelCloseOk{})
		r.send(1, &amqpwire.ChannelOpen{})
		expect(r, &amqpwire.ChannelOpenOk{})
		if n := c.ready(q); n != 0 {
			t.Errorf("messages accepted on a channel in error: got %d, want 0", n)
		}
	})
}

func TestBrokerRepliesToAccessRequest(t *testing.T) {
	eachRaw(t, func(t *testing.T, _ testkit.Target, r *raw) {
		r.open(2047, 0)
		r.send(1, &amqpwire.AccessRequest{})
		expect(r, &amqpwire.AccessRequestOk{})
	})
}

func TestBrokerClosesSilentClient(t *testing.T) {
	t.Parallel()
	eachRaw(t, func(t *testing.T, _ testkit.Target, r *raw) {
		r.open(2047, 1)
		for { // read heartbeats until the connection closes
			f, err := r.in.ReadFrame()
			if err != nil {
				if err != io.EOF && !isReset(err) {
					t.Errorf("end of the connection: got %v, want EOF or a reset", err)
				}
				return
			}
			if f.Type != amqpwire.FrameHeartbeat {
				t.Errorf("frame type: got %d, want a heartbeat", f.Type)
			}
		}
	})
}
