package queue

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// note is what a queue leaves in the store for those who come after a crash, by what its name there begins with. It says up
// to which order messages are concerned; an empty one, that after a crash all that are there are.
type note string

const (
	consumedNote note = "consumed/" // they may have been delivered
	diedNote     note = "died/"     // they may have been dead-lettered
)

func (n note) document(queue uint64) string { return fmt.Sprintf("%s%016x", string(n), queue) }

// recall reads a note. After a crash it is renewed, if it is there or the queue is concerned anyway: now it is about all that
// have come back. Messages to come are beyond it.
func (q *Queue) recall(n note, concerned bool) (upTo uint64, there bool, err error) {
	s, name := q.config.Store, n.document(q.config.ID)
	for d, err := range s.Documents(name) {
		if err != nil {
			return 0, false, err
		}
		if there = true; len(d.Value) == 8 {
			upTo = binary.BigEndian.Uint64(d.Value)
		}
	}
	if (there || concerned) && s.Unclean() && upTo < q.order {
		upTo = q.order
		s.SetDocument(name, binary.BigEndian.AppendUint64(nil, upTo))
	}
	q.order = max(q.order, upTo)
	return upTo, there, nil
}

// Noted returns the queues that there are notes of in a store, some more than once.
func Noted(s store.Store) (queues []uint64, err error) {
	for _, n := range []note{consumedNote, diedNote} {
		for d, err := range s.Documents(string(n)) {
			if err != nil {
				return nil, err
			}
			if id, err := strconv.ParseUint(d.Name[len(n):], 16, 64); err == nil {
				queues = append(queues, id)
			}
		}
	}
	return queues, nil
}

// Remove removes from a store whatever it has of a queue that is not there any more.
func Remove(s store.Store, queue uint64) {
	s.DeleteQueue(queue)
	s.DeleteDocument(consumedNote.document(queue))
	s.DeleteDocument(diedNote.document(queue))
}
