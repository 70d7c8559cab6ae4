package conformance

import (
	"testing"

	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/testkit"
)

// The broker serves AMQP 0-9 clients like AMQP 0-9-1 clients, because both use the same methods. Examples of AMQP 0-9
// clients are Perl's AnyEvent::RabbitMQ and Net::AMQP.
func TestProtocolHeader09(t *testing.T) {
	eachRaw(t, func(t *testing.T, _ testkit.Target, r *raw) {
		r.write([]byte("AMQP\x01\x01\x00\x09"))
		if start := expect(r, &amqpwire.ConnectionStart{}); start.VersionMajor != 0 || start.VersionMinor != 9 {
			t.Errorf("connection.start: got %+v, want version 0-9", start)
		}
		r.send(0, &amqpwire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
		tune := expect(r, &amqpwire.ConnectionTune{})
		r.send(0, &amqpwire.ConnectionTuneOk{ChannelMax: tune.ChannelMax, FrameMax: tune.FrameMax})
		r.send(0, &amqpwire.ConnectionOpen{VirtualHost: "/"})
		expect(r, &amqpwire.ConnectionOpenOk{})
	})
}
