package protocol_test

import (
	"errors"
	"testing"

	"github.com/reprisemq/reprise/internal/consume"
	"github.com/reprisemq/reprise/internal/protocol"
)

func TestReadKeyedQueue(t *testing.T) {
	partition := consume.PartitionQueue("a.part.x\n", 3, 12)
	for name, want := range map[string]protocol.KeyedQueue{
		partition:                          {Queue: "a.part.x\n", Partition: partition},
		consume.HeldQueue(partition):       {Queue: "a.part.x\n", Partition: partition, Held: true},
		consume.MembersQueue("a.part.x\n"): {Queue: "a.part.x\n"},
	} {
		if got, ok := protocol.ReadKeyedQueue(name); !ok || got != want {
			t.Errorf("%q: got %+v, %t, want %+v", name, got, ok, want)
		}
		if e, ok := errors.AsType[*protocol.KeyedQueueError](protocol.CheckNotKeyed(name)); !ok || e.Queue != want.Queue {
			t.Errorf("check of %q: got %v", name, e)
		}
	}
	for _, name := range []string{"orders", "orders.held", "orders.part.0", ".part.members", "orders.part.members.held", "orders.part.0-of-8.held.failed"} {
		if got, ok := protocol.ReadKeyedQueue(name); ok || protocol.CheckNotKeyed(name) != nil {
			t.Errorf("%q: got %+v, want false", name, got)
		}
	}
}
