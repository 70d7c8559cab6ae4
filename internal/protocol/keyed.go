package protocol

import (
	"fmt"
	"regexp"
)

// KeyedQueue is the name of a queue of workers with order_by: a partition, its held queue, or the queue of the members.
type KeyedQueue struct {
	Queue     string // the work queue
	Partition string // "" for the queue of the members
	Held      bool
}

// keyedName matches the names of these queues, which package consume defines.
var keyedName = regexp.MustCompile(`(?s)^((.+)\.part\.(?:members|[0-9]+-of-[0-9]+))(\.held)?$`)

// ReadKeyedQueue reads the name of a queue. It returns false for another queue.
func ReadKeyedQueue(name string) (k KeyedQueue, ok bool) {
	m := keyedName.FindStringSubmatch(name)
	if m == nil {
		return k, false
	}
	k = KeyedQueue{Queue: m[2], Partition: m[1], Held: m[3] != ""}
	if k.Partition == k.Queue+".part.members" {
		k.Partition = ""
		return k, !k.Held
	}
	return k, true
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
