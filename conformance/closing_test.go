package conformance

import (
	"io"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/testkit"
)

// After the broker has sent connection.close-ok, it continues to read. Therefore a client that is still writing can
// complete its writes and then read connection.close-ok.
func TestWritesAfterConnectionCloseSucceed(t *testing.T) {
	eachRaw(t, func(t *testing.T, _ testkit.Target, r *raw) {
		r.open(2047, 0)
		r.send(0, &amqpwire.ConnectionClose{ReplyCode: 200})
		expect(r, &amqpwire.ConnectionCloseOk{})
		publish, err := amqpwire.AppendMethodFrame(nil, 1, &amqpwire.BasicPublish{RoutingKey: "nowhere"})
		if err != nil {
			t.Fatal(err)
		}
		body := make([]byte, 64<<10)
		publish = amqpwire.AppendHeaderFrame(publish, 1, 60, uint64(len(body)), []byte{0, 0})
		publish = amqpwire.AppendBodyFrames(publish, 1, body, 131072)
		for range 256 { // exceeds the buffers of both sockets
			r.write(publish)
		}
	})
}

// After the client has sent connection.close, the broker continues to read, even if the client does not read the frames
// that the broker sends.
func TestBrokerReadsAfterConnectionClose(t *testing.T) {
	eachRaw(t, func(t *testing.T, b testkit.Target, r *raw) {
		r.open(2047, 0)
		flood, err := amqpwire.AppendMethodFrame(nil, 0, &amqpwire.ConnectionClose{ReplyCode: 200})
		if err != nil {
			t.Fatal(err)
		}
		body := make([]byte, 64<<10)
		for range 256 {
			flood, err = amqpwire.AppendMethodFrame(flood, 1, &amqpwire.BasicPublish{RoutingKey: "nowhere"})
			if err != nil {
				t.Fatal(err)
			}
			flood = amqpwire.AppendHeaderFrame(flood, 1, 60, uint64(len(body)), []byte{0, 0})
			flood = amqpwire.AppendBodyFrames(flood, 1, body, 131072)
		}
		r.write(flood)
		expect(r, &amqpwire.ConnectionCloseOk{})
	})
}

// While the broker waits for channel.close-ok, it ignores methods on the channel, except channel.open and malformed
// methods, which are connection errors.
func TestClosingChannelIgnoresMethods(t *testing.T) {
	for name, test := range map[string]struct {
		send          func(r *raw)
		code          uint16
		text          string
		class, method uint16
	}{
		"open": {
			func(r *raw) { r.send(1, &amqpwire.ChannelOpen{}) },
			504, "CHANNEL_ERROR - second 'channel.open' seen", 20, 10,
		},
		"method cut short": {
			func(r *raw) { r.frame(1, 1, "\x00\x3c\x00\x0a\x00", amqpwire.FrameEnd) },
			501, "FRAME_ERROR - cannot decode <<0>>", 60, 10,
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachRaw(t, func(t *testing.T, _ testkit.Target, r *raw) {
				r.open(2047, 0)
				r.send(1, &amqpwire.QueuePurge{Queue: testkit.Name(t, "missing")})
				expect(r, &amqpwire.ChannelClose{})
				test.send(r)
				r.closedBy(test.code, test.text, test.class, test.method)
			})
		})
	}
}

// closedBy expects connection.close with the given error and the given failing method.
func (r *raw) closedBy(code uint16, text string, class, method uint16) {
	r.t.Helper()
	c := expect(r, &amqpwire.ConnectionClose{})
	if c.ReplyCode != code || c.ReplyText != text || c.ClassID != class || c.MethodID != method {
		r.t.Errorf("connection.close: got  %d %q for method %d.%d\n                  want %d %q for method %d.%d",
			c.ReplyCode, c.ReplyText, c.ClassID, c.MethodID, code, text, class, method)
	}
}

// The error contains the method that the broker could not decode. The broker formats the bytes of the frame as RabbitMQ
// does: as a string if they are text, and otherwise as numbers.
func TestErrorsForMalformedFrames(t *testing.T) {
	const qos = "\x00\x3c\x00\x0a"
	for name, test := range map[string]struct {
		kind          byte
		channel       uint16
		payload       string
		code          uint16
		text          string
		class, method uint16
	}{
		"method cut short":          {1, 1, qos + "\x00", 501, "FRAME_ERROR - cannot decode <<0>>", 60, 10},
		"method without arguments":  {1, 1, qos, 501, "FRAME_ERROR - cannot decode <<>>", 60, 10},
		"method cut short, as text": {1, 1, qos + "zzz", 501, "FRAME_ERROR - cannot decode <<122,122,122>>", 60, 10},
		"method cut short, on a channel that is not open": {
			1, 7, qos + "\x00", 501, "FRAME_ERROR - cannot decode <<0>>", 60, 10,
		},
		"method too long": {
			1, 1, qos + "\x00\x00\x00\x00\x00\x00\x00zzz", 501, "FRAME_ERROR - cannot decode <<0,0,0,0,0,0,0,122,122,122>>", 60, 10,
		},
		"name that is not UTF-8": {
			1, 1, "\x00\x32\x00\x1e\x00\x00\x01\xff\x00", 501, "FRAME_ERROR - Malformed UTF-8 in shortstr", 0, 0,
		},
		"close-ok on a channel that is not open": {1, 7, "\x00\x14\x00\x29", 504, "CHANNEL_ERROR - expected 'channel.open'", 20, 41},

		"heartbeat with a payload": {8, 0, "abc", 501, `FRAME_ERROR - type 8, all octets = <<"abc">>: unknown_frame`, 0, 0},
		"heartbeat with a payload, on a channel": {
			8, 1, "abc", 501, `FRAME_ERROR - type 8, all octets = <<"abc">>: unknown_frame`, 0, 0,
		},
		"unknown type, a long text": {
			7, 1, strings.Repeat("a", 40), 501, `FRAME_ERROR - type 7, first 16 octets = <<"aaaaaaaaaaaaaaaa">>: unknown_frame`, 0, 0,
		},
		"unknown type, no text": {7, 1, "a\x7f", 501, `FRAME_ERROR - type 7, all octets = <<97,127>>: unknown_frame`, 0, 0},
		"unknown type, control characters": {
			7, 1, "\n\r\t\v\b\f\x1b\"\\'~", 501, `FRAME_ERROR - type 7, all octets = <<"\n\r\t\v\b\f\e\"\\'~">>: unknown_frame`, 0, 0,
		},
		"unknown type, UTF-8":      {7, 1, "aåz", 501, `FRAME_ERROR - type 7, all octets = <<"aåz"/utf8>>: unknown_frame`, 0, 0},
		"unknown type, ISO 8859-1": {7, 1, "a\xe5z", 501, "FRAME_ERROR - type 7, all octets = <<\"aåz\">>: unknown_frame", 0, 0},
		"header cut short":         {2, 1, "\x00\x3c\x00\x00", 501, "FRAME_ERROR - type 2, all octets = <<0,60,0,0>>: unknown_frame", 0, 0},
		"header cut short, on channel 0": {
			2, 0, "\x01\x02\x03", 501, "FRAME_ERROR - type 2, all octets = <<1,2,3>>: unknown_frame", 0, 0,
		},
		"body on channel 0": {3, 0, "\x01\x02\x03", 505, "UNEXPECTED_FRAME - type 3, all octets = <<1,2,3>>", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			eachRaw(t, func(_ *testing.T, b testkit.Target, r *raw) {
				if b.Version == "3.10" && strings.Contains(test.text, "å") {
					return // 3.10 prints the bytes as numbers
				}
				r.open(2047, 0)
				r.frame(test.kind, test.channel, test.payload, amqpwire.FrameEnd)
				r.closedBy(test.code, test.text, test.class, test.method)
			})
		})
	}
}

// If authentication fails, the broker closes the connection without a reason.
func TestHandshakeErrorsHaveNoReply(t *testing.T) {
	as := func(mechanism, response string) func(r *raw) {
		return func(r *raw) {
			r.send(0, &amqpwire.ConnectionStartOk{
				ClientProperties: amqpwire.Table{{Name: "capabilities", Value: amqpwire.Table{{Name: "authentication_failure_close", Value: true}}}},
				Mechanism:        mechanism, Response: response, Locale: "en_US",
			})
		}
	}
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		clients := make(map[string]*raw)
		for name, mistake := range map[string]func(r *raw){
			"unknown mechanism":     as("NOSUCH", "x"),
			"mechanism of TLS":      as("EXTERNAL", ""),
			"no mechanism":          as("", ""),
			"malformed PLAIN":       as("PLAIN", "guest"),
			"malformed AMQPLAIN":    as("AMQPLAIN", "xx"),
			"another method":        func(r *raw) { r.send(0, &amqpwire.ConnectionOpen{VirtualHost: "/"}) },
			"a method on channel 1": func(r *raw) { r.send(1, &amqpwire.ChannelOpen{}) },
			"a truncated method":    func(r *raw) { r.frame(1, 0, "\x00\x0a\x00\x0b\x00", amqpwire.FrameEnd) },
			"an unknown frame":      func(r *raw) { r.frame(7, 0, "abc", amqpwire.FrameEnd) },
		} {
			r := dialRaw(t, b)
			r.write(amqpwire.ProtocolHeader[:])
			expect(r, &amqpwire.ConnectionStart{})
			mistake(r)
			clients[name] = r
		}
		for name, r := range clients { // RabbitMQ closes the connection after three seconds
			if answer, err := io.ReadAll(r.Conn); len(answer) > 0 || err != nil && !isReset(err) {
				t.Errorf("%s: got %q, %v; want the end of the connection", name, answer, err)
			}
		}
	})
}

func TestErrorsInsteadOfConnectionOpen(t *testing.T) {
	for name, test := range map[string]struct {
		send          func(r *raw)
		code          uint16
		text          string
		class, method uint16
	}{
		"another method": {
			func(r *raw) { r.send(0, &amqpwire.ConnectionClose{}) },
			504, "CHANNEL_ERROR - unexpected method in connection state opening", 10, 50,
		},
		"another channel": {
			func(r *raw) { r.send(1, &amqpwire.ChannelOpen{}) },
			505, "UNEXPECTED_FRAME - type 1, all octets = <<0,20,0,10,0>>", 0, 0,
		},
		"an unknown frame": {
			func(r *raw) { r.frame(7, 0, "abc", amqpwire.FrameEnd) },
			501, `FRAME_ERROR - type 7, all octets = <<"abc">>: unknown_frame`, 0, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachRaw(t, func(t *testing.T, _ testkit.Target, r *raw) {
				r.start("\x00guest\x00guest", nil)
				tune := expect(r, &amqpwire.ConnectionTune{})
				r.send(0, &amqpwire.ConnectionTuneOk{ChannelMax: tune.ChannelMax, FrameMax: tune.FrameMax})
				test.send(r)
				r.closedBy(test.code, test.text, test.class, test.method)
			})
		})
	}
}
