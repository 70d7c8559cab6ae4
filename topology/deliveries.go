package topology

// Deliveries are the Marks of messages that are given back rather than copied:
// the queue itself counts them, in the header x-delivery-count of quorum queues.
// Nothing is known of an attempt but that it was made. When the message is
// parked, by a copy, that carries what a Trail does, with the last error.
//
// What the queue counts are deliveries that ended without an acknowledgement,
// whatever the reason. A connection that was lost counts as an attempt, and
// before RabbitMQ 4.3 so does a delivery that a worker gave back when it stopped.
// Since 4.3, a message that was dead-lettered from another quorum queue brings
// along the deliveries that failed there, and has as many attempts less. (x-death
// would say which they were. But anybody can publish a message with an x-death,
// and to subtract what it says would be to retry that one for ever.)
type Deliveries struct {
	// Classic counts redelivered as one delivery where the queue does not count, for
	// Requeuing.Classic.
	Classic bool
}

// Owns reports whether header is one of Trail's.
func (Deliveries) Owns(header string) bool { return Trail{}.Owns(header) }

// Read returns the number of deliveries before this one, and what a Trail kept
// from before the message came into the queue.
func (m Deliveries) Read(d Delivery) History {
	h := trailOf(d)
	n := deliveryCount(d)
	if m.Classic && counted(d) != nil {
		n = 1
	}
	h.Attempts = add(h.Attempts, n)
	return h
}

// Crashes is 0: the queue counts them as attempts already.
func (Deliveries) Crashes(Delivery) int { return 0 }

// Retry returns what Trail does. It is not asked where nothing is copied.
func (Deliveries) Retry(headers Table, f Failure) Table { return Trail{}.Retry(headers, f) }

// Park returns what Trail does.
func (Deliveries) Park(headers Table, f Failure) Table { return Trail{}.Park(headers, f) }

// trailOf reads a Trail of the delivery's own queue. That of another one, with
// which somebody has moved the message here, does not count.
func trailOf(d Delivery) History {
	if h := (Trail{}).Read(d); h.Queue == "" || h.Queue == d.Queue {
		return h
	}
	return History{RetriesLeft: Undecided}
}
