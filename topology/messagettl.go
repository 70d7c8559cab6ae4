package topology

import (
	"errors"
	"time"
)

// MessageTTL is the Route for systems that use one wait queue for all delays, with an expiration on each copy. Use it
// to work with such an existing system. For a new system, use Buckets.
//
// A message with a short delay waits for earlier messages with long delays, because RabbitMQ expires only the message
// at the head of a queue (https://www.rabbitmq.com/docs/ttl#message-ttl-dead-lettering). For example, a copy that is
// due in one second, behind a copy that is due in one hour, returns in one hour. Copies are never early, but can be
// late by up to the longest delay in use. If all delays are equal, all copies are on time.
//
// The zero value does not need existing objects. Its wait queue is {queue}.wait, which dead-letters to the work queue
// through the default exchange. In an existing system, Infrastructure describes the objects of the system, and the addresses
// are the destinations of waiting and parked copies:
//
//	topology.MessageTTL{
//		WaitAddress:    topology.Address{Exchange: "orders.wait", Key: "{key}"},
//		FailedAddress:  topology.Address{Exchange: "orders.failed", Key: "{key}"},
//		WorkExchange:   "orders",
//		Infrastructure: topology.Topology{…},
//	}
type MessageTTL struct {
	WaitAddress   Address // default: the queue {queue}.wait
	FailedAddress Address // default: the queue {queue}.failed

	// WorkExchange is the exchange to which the wait queue dead-letters expired copies, with the routing key that replaces
	// {key} in the addresses. "" is the default exchange, which routes by the name of the work queue.
	WorkExchange string

	// Infrastructure declares all objects, including the bindings through which WorkExchange reaches each work queue. If
	// Infrastructure is empty, the worker declares the queues of the addresses and, if it does not exist, the work
	// queue.
	Infrastructure Topology
}

func (m MessageTTL) withDefaults() MessageTTL {
	m.WaitAddress = m.WaitAddress.orQueue("{queue}.wait")
	m.FailedAddress = m.FailedAddress.orQueue("{queue}.failed")
	return m
}

// Validate reports invalid addresses and a contradictory Infrastructure.
func (m MessageTTL) Validate() error {
	own := m.Infrastructure.empty()
	m = m.withDefaults()
	errs := []error{validateApart("MessageTTL.WaitAddress", "FailedAddress", m.WaitAddress == m.FailedAddress)}
	for _, a := range []struct {
		field string
		Address
	}{{"MessageTTL.WaitAddress", m.WaitAddress}, {"MessageTTL.FailedAddress", m.FailedAddress}} {
		if own {
			errs = append(errs, a.validate(a.field))
			continue
		}
		errs = append(errs, validateLength(a.field+".Key", a.Key), validateLength(a.field+".Exchange", a.Exchange))
		if a.Key == "{key}" && a.Exchange != "" { // with another key, one exchange can route to different queues
			errs = append(errs, validateWait(a.field, a.Exchange, m.WorkExchange))
		}
	}
	return errors.Join(append(errs, m.Infrastructure.Validate())...)
}

// ValidateQueue reports a work queue whose derived queues would have invalid names. It also reports a work queue that,
// according to Infrastructure, WorkExchange does not reach, because the retries would be lost.
func (m MessageTTL) ValidateQueue(queue string) error {
	m = m.withDefaults()
	return errors.Join(
		m.WaitAddress.validateOtherQueue("MessageTTL.WaitAddress", queue, m.WorkExchange),
		m.FailedAddress.validateOtherQueue("MessageTTL.FailedAddress", queue, m.WorkExchange),
		m.Infrastructure.validateReturnPath("MessageTTL", m.WorkExchange, queue),
		validateNames(queue, m.WaitAddress.queue(queue), m.FailedAddress.queue(queue)))
}

// Topology returns the Infrastructure. If the Infrastructure is empty, it returns the work queue, which is declared only
// if it does not exist, and its failed queue.
func (m MessageTTL) Topology(queue string) Topology {
	if !m.Infrastructure.empty() {
		return m.Infrastructure
	}
	return workAndFailed(queue, m.withDefaults().FailedAddress.queue(queue))
}

// Wait returns the hop into the wait queue. It rounds the delay up to whole milliseconds. A delay
// beyond MaxDelay counts as MaxDelay.
func (m MessageTTL) Wait(d Delivery, delay time.Duration) (Hop, error) {
	m = m.withDefaults()
	delay = time.Duration(milliseconds(min(delay, MaxDelay))) * time.Millisecond
	own := waitQueue(m.WaitAddress.queue(d.Queue), "", d.Queue)
	hop := m.Infrastructure.hop(m.WaitAddress, d, m.WorkExchange, own)
	hop.TTL = max(delay, time.Millisecond) // 0 would mean no expiration
	hop.Delay = delay
	return hop, nil
}

// Failed returns the hop into the failed queue.
func (m MessageTTL) Failed(d Delivery) Hop {
	m = m.withDefaults()
	return m.Infrastructure.hop(m.FailedAddress, d, m.WorkExchange, failedQueue(m.FailedAddress.queue(d.Queue)))
}
