package queue

// refuses reports whether the queue is too full for a message, and whose the loss is then.
func (q *Queue) refuses(m *Message) bool {
	if q.config.Overflow == DropHead {
		return false
	}
	length, bytes := q.charged()
	if q.config.Quorum {
		// A soft limit: it is looked at before the message is counted, so that there may be one more.
		return exceeds(length, q.config.MaxLength) || exceeds(bytes, q.config.MaxBytes)
	}
	return exceeds(length+1, q.config.MaxLength) || exceeds(bytes+q.config.bytes(m), q.config.MaxBytes)
}

// trim drops messages from the head while there are too many.
func (q *Queue) trim() {
	if q.config.Overflow != DropHead {
		return
	}
	for head := q.ready.head(); head != nil; head = q.ready.head() {
		length, bytes := q.charged()
		if !exceeds(length, q.config.MaxLength) && !exceeds(bytes, q.config.MaxBytes) {
			return
		}
		q.ready.remove(head)
		q.die(head, MaxLength)
	}
}

// charged is what counts against the limits: what is ready, and the dead letters that are not with another queue yet.
func (q *Queue) charged() (length, bytes int64) {
	return int64(q.ready.len() + q.dead.held), q.ready.bytes + q.dead.heldBytes
}

func exceeds(n, limit int64) bool { return limit >= 0 && n > limit }
