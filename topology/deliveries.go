package topology

// Deliveries implements Marks for messages that are requeued without a copy. A quorum queue counts the deliveries in the
// header x-delivery-count. Deliveries provides only the number of attempts. When a worker parks a message, it publishes a
// copy with the headers of Trail and the last error.
//
// The queue also counts deliveries that were never settled, so a lost connection counts as an attempt. Before RabbitMQ 4.3,
// a delivery that a worker requeued during its shutdown counts, too. Since 4.3, a message that another quorum queue
// dead-lettered keeps the count of its failed deliveries from that queue, which leaves fewer attempts. (The header x-death
// contains the number of these deliveries. But any publisher can write x-death, so subtracting its count would permit
// endless retries.)
type Deliveries struct {
	// Classic counts a redelivered message as one delivery if the queue does not count deliveries. Requeuing.Classic
	// sets this field.
	Classic bool
}

// Owns reports whether header is a header of Trail.
func (Deliveries) Owns(header string) bool { return Trail{}.Owns(header) }

// Read returns the history of Trail, from before the message was published to the queue, and adds the number of
// earlier failed deliveries to the attempts.
func (m Deliveries) Read(d Delivery) History {
	h := trailOf(d)
	n := deliveryCount(d)
	if m.Classic && checkCounted(d) != nil {
		n = 1
	}
	h.Attempts = add(h.Attempts, n)
	return h
}

// Crashes returns 0, because the queue counts crashes as attempts.
func (Deliveries) Crashes(Delivery) int { return 0 }

// Retry returns the same headers as Trail. A worker calls Retry only if the worker publishes a copy.
func (Deliveries) Retry(headers Table, f Failure) Table { return Trail{}.Retry(headers, f) }

// Park returns the same headers as Trail.
func (Deliveries) Park(headers Table, f Failure) Table { return Trail{}.Park(headers, f) }

// trailOf reads the Trail of the delivery's queue. It ignores a Trail of another queue, which remains
// on a message that was moved to this queue.
func trailOf(d Delivery) History {
	if h := (Trail{}).Read(d); h.Queue == "" || h.Queue == d.Queue {
		return h
	}
	return History{RetriesLeft: Undecided}
}
