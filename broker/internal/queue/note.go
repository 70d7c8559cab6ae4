package queue

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// note is a kind of document that a queue saves in the store and needs after a crash. Its value is the prefix of the
// document name. The document contains the highest order of the affected messages. An empty document affects all messages
// that remain after a crash.
type note string

const (
	consumedNote note = "consumed/" // these messages may have been delivered
	diedNote     note = "died/"     // these messages may have been dead-lettered
)

func (n note) document(queue uint64) string { return fmt.Sprintf("%s%016x", string(n), queue) }

// recall reads a note. After a crash, it extends the note if the note exists or force is true. The extended note covers all
// messages that were restored. Later messages get higher orders and are not affected.
func (q *Queue) recall(n note, force bool) (upTo uint64, there bool, err error) {
	s, name := q.config.Store, n.document(q.config.ID)
	for d, err := range s.Documents(name) {
		if err != nil {
			return 0, false, err
		}
		if there = true; len(d.Value) == 8 {
			upTo = binary.BigEndian.Uint64(d.Value)
		}
	}
	if (there || force) && s.Unclean() && upTo < q.order {
		upTo = q.order
		s.SetDocument(name, binary.BigEndian.AppendUint64(nil, upTo))
	}
	q.order = max(q.order, upTo)
	return upTo, there, nil
}

// Noted returns the queues that have notes in a store. A queue may occur twice.
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

// Remove removes the messages and notes of a queue that no longer exists from a store.
func Remove(s store.Store, queue uint64) {
	s.DeleteQueue(queue)
	s.DeleteDocument(consumedNote.document(queue))
	s.DeleteDocument(diedNote.document(queue))
}
