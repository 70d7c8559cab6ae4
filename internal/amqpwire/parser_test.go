package amqpwire

import (
	"reflect"
	"testing"
)

// Earlier calls to Parse do not affect the result.
func TestParserIsIndependentOfEarlierCalls(t *testing.T) {
	var p Parser
	for _, m := range []Method{
		&BasicPublish{Exchange: "x", RoutingKey: "k", Mandatory: true},
		&BasicPublish{Exchange: "x", RoutingKey: "k2"},
		&BasicPublish{},
		&BasicAck{DeliveryTag: 1, Multiple: true},
		&BasicAck{DeliveryTag: 2},
		&BasicNack{DeliveryTag: 3, Requeue: true},
		&BasicReject{DeliveryTag: 4, Requeue: true},
		&ChannelOpen{},
	} {
		frame, err := AppendMethodFrame(nil, 1, m)
		if err != nil {
			t.Fatal(err)
		}
		payload := frame[frameHeaderSize : len(frame)-1]
		if have, err := p.Parse(payload); err != nil || !reflect.DeepEqual(have, m) {
			t.Errorf("got %#v, %v; want %#v", have, err, m)
		}
	}
}

func TestParserDoesNotAllocate(t *testing.T) {
	var p Parser
	publish, err := AppendMethodFrame(nil, 1, &BasicPublish{Exchange: "logs", RoutingKey: "info"})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := p.Parse(publish[frameHeaderSize : len(publish)-1]); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("allocations for a message with the previous destination: got %v, want 0", n)
	}
}
