package topology_test

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology"
)

func TestTableWireSize(t *testing.T) {
	for _, tc := range []struct {
		value any
		want  int // size of the type byte and the value
	}{
		{nil, 1},
		{true, 2},
		{int8(1), 2},
		{byte(1), 2},
		{int16(1), 3},
		{uint16(1), 3},
		{int32(1), 5},
		{uint32(1), 5},
		{int64(1), 9},
		{1, 9},
		{uint(1), 9},
		{uint64(1), 9},
		{float32(1), 5},
		{float64(1), 9},
		{time.Now(), 9},
		{"three", 1 + 4 + 5},
		{[]byte("three"), 1 + 4 + 5},
		{[]any{1, "a"}, 1 + 4 + 9 + 6},
		{[]any(nil), 1 + 4},
		{topology.Table{"key": 1}, 1 + 4 + 1 + 3 + 9},
		{topology.Table(nil), 1 + 4},
		{map[string]any{"key": 1}, 1 + 4 + 1 + 3 + 9},
		{amqp.Table{"key": map[string]any{"k": 1}}, 1 + 4 + 1 + 3 + 1 + 4 + 1 + 1 + 9},
	} {
		if got := (topology.Table{"name": tc.value}).WireSize(); got != 4+1+4+tc.want {
			t.Errorf("size of %#v: got %d, want %d", tc.value, got-4-1-4, tc.want)
		}
	}
}
