package session

import (
	"testing"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Acks that the session reads together have the same effect as separate acks. Acks before an error take effect, and acks
// after the error do not. The broker requeues the unacked messages.
func TestBatchedAcksMatchSeparateAcks(t *testing.T) {
	conn := connect(t, testConfig(t, nil))
	say := func(b []byte, last amqpwire.MethodID) amqpwire.Method {
		t.Helper()
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		return readUntil(t, conn, last)
	}
	var b []byte
	add := func(channel uint16, m amqpwire.Method) {
		b, _ = amqpwire.AppendMethodFrame(b, channel, m)
	}
	add(1, &amqpwire.ChannelOpen{})
	add(2, &amqpwire.ChannelOpen{})
	add(1, &amqpwire.QueueDeclare{Queue: "q"})
	add(1, &amqpwire.BasicConsume{Queue: "q"})
	say(b, amqpwire.IDBasicConsumeOk)
	b = nil
	for range 5 {
		b = append(b, encodeMessage(t, &amqpwire.BasicPublish{RoutingKey: "q"}, []byte("m"))...)
	}
	add(2, &amqpwire.BasicQos{})
	say(b, amqpwire.IDBasicQosOk) // qos-ok follows the deliveries

	b = nil
	for _, tag := range []uint64{1, 3, 99, 4} {
		add(1, &amqpwire.BasicAck{DeliveryTag: tag})
	}
	if e := say(b, amqpwire.IDChannelClose).(*amqpwire.ChannelClose); e.ReplyCode != 406 ||
		e.ReplyText != "PRECONDITION_FAILED - unknown delivery tag 99" || e.MethodID != amqpwire.IDBasicAck.Method() {
		t.Errorf("channel closed with %+v", e)
	}
	b = nil
	add(2, &amqpwire.QueueDeclare{Queue: "q", Passive: true})
	if ok := say(b, amqpwire.IDQueueDeclareOk).(*amqpwire.QueueDeclareOk); ok.MessageCount != 3 {
		t.Errorf("requeued messages: got %d, want 3: 2, 4 and 5", ok.MessageCount)
	}
}
