package session

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// FuzzSession sends arbitrary data after a valid handshake, with or without framing. The session must reply or close the
// connection, and Serve must return when the client disconnects.
func FuzzSession(f *testing.F) {
	var script []byte
	for _, m := range []amqpwire.Method{
		&amqpwire.ChannelOpen{},
		&amqpwire.ConfirmSelect{},
		&amqpwire.QueueDeclare{Queue: "q", Arguments: amqpwire.Table{{Name: "x-dead-letter-exchange", Value: ""}}},
		&amqpwire.ExchangeDeclare{Exchange: "x", Type: "topic"},
		&amqpwire.ExchangeBind{Source: "x", Destination: "amq.fanout", RoutingKey: "#"},
		&amqpwire.QueueBind{Queue: "q", Exchange: "x", RoutingKey: "a.*"},
		&amqpwire.BasicQos{PrefetchCount: 2},
		&amqpwire.BasicConsume{Queue: "q", ConsumerTag: "c"},
	} {
		script, _ = amqpwire.AppendMethodFrame(script, 1, m)
	}
	f.Add(script)
	for range 3 {
		script, _ = amqpwire.AppendMethodFrame(script, 1, &amqpwire.BasicPublish{RoutingKey: "q", Mandatory: true})
		script = amqpwire.AppendHeaderFrame(script, 1, 60, 4, []byte{0, 0})
		script = amqpwire.AppendBodyFrames(script, 1, []byte("body"), 8192)
	}
	f.Add(script)
	for _, m := range []amqpwire.Method{
		&amqpwire.BasicAck{DeliveryTag: 1},
		&amqpwire.BasicNack{DeliveryTag: 2, Requeue: true},
		&amqpwire.BasicReject{DeliveryTag: 3},
		&amqpwire.BasicRecover{Requeue: true},
		&amqpwire.BasicGet{Queue: "q"},
		&amqpwire.BasicCancel{ConsumerTag: "c"},
		&amqpwire.QueuePurge{Queue: "q"},
		&amqpwire.QueueDelete{Queue: "q"},
		&amqpwire.ChannelClose{},
		&amqpwire.ConnectionClose{},
	} {
		script, _ = amqpwire.AppendMethodFrame(script, 1, m)
		f.Add(script)
	}

	f.Fuzz(func(t *testing.T, script []byte) {
		client, server := net.Pipe()
		s := New(server, testConfig(t, nil))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = s.Serve()
		}()
		go func() { _, _ = io.Copy(io.Discard, client) }()

		_ = client.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = client.Write(append(hello(), script...)) // fails if the session has closed the connection
		_ = client.Close()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatal("Serve did not return after the client disconnected")
		}
	})
}
