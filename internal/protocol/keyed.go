package protocol

import (
	"fmt"
	"strings"

	"github.com/reprisemq/reprise/internal/amqpvalue"
)

// KeyedQueue is the name of a queue of workers with order_by: a partition, its held queue, or the queue of the members.
type KeyedQueue struct {
	Queue     string // the work queue
	Partition string // "" for the queue of the members
	Held      bool
}

// ReadKeyedQueue reads the name of a queue, which package consume defines. It returns false for another queue.
func ReadKeyedQueue(name string) (k KeyedQueue, ok bool) {
	if queue, found := strings.CutSuffix(name, ".part.members"); found && queue != "" {
		return KeyedQueue{Queue: queue}, true
	}
	partition, held := strings.CutSuffix(name, ".held")
	p, ok := amqpvalue.ReadPart(partition)
	if !ok || p.Kind != "part" {
		return k, false
	}
	return KeyedQueue{Queue: p.Queue, Partition: partition, Held: held}, true
}

// KeyedQueueError is the refusal to receive messages from a queue of workers with order_by.
type KeyedQueueError struct{ Name, Queue string }

// CheckNotKeyed returns a *KeyedQueueError for a queue of workers with order_by. Only the owner of a partition may receive its messages:
// another consumer changes their order or loses the state of the keys.
func CheckNotKeyed(name string) error {
	if k, ok := ReadKeyedQueue(name); ok {
		return &KeyedQueueError{name, k.Queue}
	}
	return nil
}

func (e *KeyedQueueError) Error() string {
	return fmt.Sprintf("only the workers of queue %q may receive messages from %q, because order_by keeps their order (reprise keys and the page Workers of the console list, retry and park its messages)", e.Queue, e.Name)
}
