package topology

import (
	"errors"
	"time"
)

// MessageTTL is the Route of systems with one wait queue for all delays, where
// each copy has an expiration of its own. It is there to take part in such
// systems; a new one wants Buckets.
//
// A short delay waits behind a long one. RabbitMQ expires only the message at
// the head of a queue (https://www.rabbitmq.com/docs/ttl#message-ttl-dead-lettering),
// so that a copy that is due in a second, behind one that is due in an hour,
// comes back in an hour. None is early, and each late by up to the longest
// delay in use. Only where all delays are equal, all are in time.
//
// The zero value needs nothing that exists: the wait queue is {queue}.wait, and
// dead-letters to the work queue through the default exchange. In a system that
// is there already, Infrastructure is what it consists of, and the addresses say
// where its wait queue and its failed queue are published to:
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

	// WorkExchange is where copies expire to, under the key that {key} stands
	// for in the addresses. "" is the default exchange, which knows the work
	// queue by its name.
	WorkExchange string

	// Infrastructure declares all of it, and names the keys by which
	// WorkExchange reaches each work queue. Left empty, the queues that the
	// addresses name are declared, and the work queue where it does not exist.
	Infrastructure Topology
}

func (m MessageTTL) withDefaults() MessageTTL {
	m.WaitAddress = m.WaitAddress.or("{queue}.wait")
	m.FailedAddress = m.FailedAddress.or("{queue}.failed")
	return m
}

// Validate reports addresses that lead nowhere, and a contradictory
// Infrastructure.
func (m MessageTTL) Validate() error {
	own := m.Infrastructure.empty()
	m = m.withDefaults()
	errs := []error{validateApart("MessageTTL.WaitAddress", "FailedAddress", m.WaitAddress == m.FailedAddress, "the same")}
	for _, a := range []struct {
		field string
		Address
	}{{"MessageTTL.WaitAddress", m.WaitAddress}, {"MessageTTL.FailedAddress", m.FailedAddress}} {
		if own {
			errs = append(errs, a.validate(a.field))
			continue
		}
		errs = append(errs, validateLength(a.field+".Key", a.Key), validateLength(a.field+".Exchange", a.Exchange))
		if a.Key == "{key}" && a.Exchange != "" { // another key tells them apart
			errs = append(errs, validateWait(a.field, a.Exchange, m.WorkExchange))
		}
	}
	return errors.Join(append(errs, m.Infrastructure.Validate())...)
}

// ValidateQueue reports a work queue whose other queues would have names that
// no broker accepts, and one that WorkExchange does not lead to, as far as
// Infrastructure says: its retries would be lost.
func (m MessageTTL) ValidateQueue(queue string) error {
	m = m.withDefaults()
	return errors.Join(
		m.WaitAddress.notInto("MessageTTL.WaitAddress", queue, m.WorkExchange),
		m.FailedAddress.notInto("MessageTTL.FailedAddress", queue, m.WorkExchange),
		m.Infrastructure.validateWayBack("MessageTTL", m.WorkExchange, queue),
		validateNames(queue, m.WaitAddress.queue(queue), m.FailedAddress.queue(queue)))
}

// Topology returns the Infrastructure; without one, the work queue, declared
// only if it does not exist, and its failed queue.
func (m MessageTTL) Topology(queue string) Topology {
	if !m.Infrastructure.empty() {
		return m.Infrastructure
	}
	return workAndFailed(queue, m.withDefaults().FailedAddress.queue(queue))
}

// Wait returns the hop into the wait queue. Whole milliseconds, rounded up; a
// delay beyond MaxDelay counts as MaxDelay.
func (m MessageTTL) Wait(d Delivery, delay time.Duration) (Hop, error) {
	m = m.withDefaults()
	delay = time.Duration(milliseconds(min(delay, MaxDelay))) * time.Millisecond
	own := waitQueue(m.WaitAddress.queue(d.Queue), "", d.Queue)
	hop := m.Infrastructure.hop(m.WaitAddress, d, m.WorkExchange, own)
	hop.TTL = max(delay, time.Millisecond) // 0 would mean for ever
	hop.Delay = delay
	return hop, nil
}

// Failed returns the hop into the failed queue.
func (m MessageTTL) Failed(d Delivery) Hop {
	m = m.withDefaults()
	return m.Infrastructure.hop(m.FailedAddress, d, m.WorkExchange, failedQueue(m.FailedAddress.queue(d.Queue)))
}
