package topology

// Headers of quorum queues, from the second delivery on: how many before it
// failed; and, since 4.3, how many there were, those that were given back on
// purpose included.
// https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling
const (
	headerDeliveryCount = "x-delivery-count"
	headerAcquiredCount = "x-acquired-count"
)

// Crashes returns how often d was delivered before and then neither
// acknowledged nor copied: its handler took the process, or the connection,
// down with it. Where attempts end in other ways that the broker counts too, the
// Marks know which is which, in a method Crashes(d Delivery) int. Otherwise it
// is what the queue counts, and so always 0 on classic queues, which do not
// count. Before RabbitMQ 4.3, a delivery that was given back counts as well; since
// 4.3, a dead letter of another quorum queue brings along what failed there.
func Crashes(m Marks, d Delivery) int {
	if c, ok := m.(interface{ Crashes(d Delivery) int }); ok {
		return c.Crashes(d)
	}
	return deliveryCount(d)
}

// deliveryCount is what the queue counts. Of a first delivery that is nothing: a
// header that is there all the same was published with the message, by whoever
// copied all the headers of another one, or made them up. When a delivery has
// failed, a quorum queue writes its own count over it. Until then, and always on
// a classic queue, such a header is seen on what was given back, and believed: the
// message has fewer attempts, never more.
func deliveryCount(d Delivery) int {
	if !d.Redelivered {
		return 0
	}
	return count(d.Headers[headerDeliveryCount])
}
