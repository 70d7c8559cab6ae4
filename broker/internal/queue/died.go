package queue

import "time"

// restoreDied finds out which messages may have been dead-lettered before the broker ended without a word, and are there
// again because that was not on disk yet. Where they went they may have been delivered, and may not come there a second
// time as if they never had. That somebody rejected them is told by the queue's being consumed from; this is for those that
// die without anybody's doing. It is noted in the store, since such a message may die again only after further starts.
func (q *Queue) restoreDied() (err error) {
	q.died, _, err = q.recall(diedNote, q.config.DeadLetter != nil)
	return err
}

// diesAlone reports whether a message could have been dead-lettered at any time before now by the queue itself.
func (q *Queue) diesAlone(it *Item) bool {
	drops := q.config.Overflow == DropHead && (q.config.MaxLength >= 0 || q.config.MaxBytes >= 0)
	return drops || !it.deadline.IsZero() && !time.Now().Before(it.deadline)
}
