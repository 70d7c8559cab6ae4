package queue

import "time"

// restoreDied finds the messages that the broker may have dead-lettered before a crash. Such a message is in the queue again
// if its removal was not yet on disk. A consumer of the target queue may have received the message already, so a second copy
// must be marked as redelivered. For rejected messages, consumedNote has this effect. The note diedNote covers messages that
// the queue dead-letters without a consumer. The store keeps diedNote, because several restarts may precede the next
// dead-lettering of such a message.
func (q *Queue) restoreDied() (err error) {
	q.died, _, err = q.recall(diedNote, q.config.DeadLetter != nil)
	return err
}

// mayHaveDied reports whether the queue may have dead-lettered the message without a consumer before the restart.
func (q *Queue) mayHaveDied(it *Item) bool {
	drops := q.config.Overflow == DropHead && (q.config.MaxLength >= 0 || q.config.MaxBytes >= 0)
	return drops || !it.deadline.IsZero() && !time.Now().Before(it.deadline)
}
