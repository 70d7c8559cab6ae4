package queue

// restoreDied determines which messages the broker may have dead-lettered before a crash. If the removal of such a
// message was not yet on disk, the message is in the queue again. A consumer of the target queue may already have
// received the first dead letter, so the second dead letter must be marked as redelivered. For rejected messages,
// consumedNote has this effect. The note diedNote covers messages that the queue dead-letters without a consumer. It
// stays in the store, because several restarts may precede the next dead-lettering of such a message.
func (q *Queue) restoreDied() (err error) {
	q.died, q.diedBefore, _, err = q.recall(diedNote, q.config.DeadLetter != nil)
	return err
}

// mayHaveDied reports whether the queue may have dead-lettered the message before the crash because the message expired
// or its delay was over, or because the queue exceeded its limits. A message that expires after the restart was not
// dead-lettered before.
func (q *Queue) mayHaveDied(it *Item) bool {
	drops := q.config.Overflow == DropHead && (q.config.MaxLength >= 0 || q.config.MaxBytes >= 0)
	ends := it.deadline
	if q.config.Delay != nil {
		ends = it.due
	}
	return drops || !ends.IsZero() && ends.Before(q.diedBefore)
}
