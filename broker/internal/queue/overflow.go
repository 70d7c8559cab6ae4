package queue

// refuses reports whether the queue rejects a message because the queue is full. A queue with the overflow behavior
// drop-head never rejects messages.
func (q *Queue) refuses(m *Message) bool {
	if q.config.Overflow == DropHead {
		return false
	}
	length, bytes := q.charged()
	if q.config.Quorum {
		// The check does not include the new message, so the queue may exceed its limit by one message.
		return exceeds(length, q.config.MaxLength) || exceeds(bytes, q.config.MaxBytes)
	}
	return exceeds(length+1, q.config.MaxLength) || exceeds(bytes+q.config.bytes(m), q.config.MaxBytes)
}

// trim removes messages from the head until the queue is within its limits, if the overflow behavior is drop-head.
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

// charged returns the number and the size of the messages that count against the limits. These are ready messages,
// and at-least-once dead letters that are not yet in another queue.
func (q *Queue) charged() (length, bytes int64) {
	return int64(q.ready.len() + q.dead.held), q.ready.bytes + q.dead.heldBytes
}

func exceeds(n, limit int64) bool { return limit >= 0 && n > limit }
