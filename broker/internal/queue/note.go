package queue

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/reprisemq/reprise/broker/internal/store"
)

// note is a kind of document that a queue saves in the store, for use after a crash. The value of a note is the prefix
// of the document name. The document contains the highest order of the affected messages, and diedNote also contains the
// time of the first start after the crash. If the document is empty, all messages that remain after a crash are affected.
type note string

const (
	consumedNote note = "consumed/" // these messages may have been delivered
	diedNote     note = "died/"     // these messages may have been dead-lettered
)

func (n note) document(queue uint64) string { return fmt.Sprintf("%s%016x", string(n), queue) }

// recall reads a note. After a crash, if the note exists or force is set, recall extends the note to all restored
// messages. New messages get higher orders and are not affected. The time before is later than the last crash.
func (q *Queue) recall(n note, force bool) (upTo uint64, before time.Time, there bool, err error) {
	s, name := q.config.Store, n.document(q.config.ID)
	before = time.Now()
	for d, err := range s.Documents(name) {
		if err != nil {
			return 0, before, false, err
		}
		if there = true; len(d.Value) >= 8 {
			upTo = binary.BigEndian.Uint64(d.Value)
		}
		if len(d.Value) == 16 && !s.Unclean() {
			before = time.Unix(0, int64(binary.BigEndian.Uint64(d.Value[8:])))
		}
	}
	if last := max(upTo, q.order); (there || force) && s.Unclean() && (upTo < last || n == diedNote && last > 0) {
		upTo = last
		value := binary.BigEndian.AppendUint64(nil, upTo)
		if n == diedNote {
			value = binary.BigEndian.AppendUint64(value, uint64(before.UnixNano()))
		}
		s.SetDocument(name, value)
	}
	q.order = max(q.order, upTo)
	return upTo, before, there, nil
}

// Noted returns the IDs of the queues that have notes in a store. An ID may occur twice.
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

// Remove removes from a store the messages and the notes of a queue that no longer exists.
func Remove(s store.Store, queue uint64) {
	s.DeleteQueue(queue)
	s.DeleteDocument(consumedNote.document(queue))
	s.DeleteDocument(diedNote.document(queue))
}
