package stats

import "sync/atomic"

// Node contains the counters of a broker.
type Node struct {
	Messages Totals
	Churn    Churn
	Dead     Dead

	AMQPLogins, HTTPLogins Logins
}

// Logins counts logins.
type Logins struct {
	Succeeded, Failed atomic.Uint64
}

// Count counts a login.
func (l *Logins) Count(succeeded bool) {
	if succeeded {
		l.Succeeded.Add(1)
	} else {
		l.Failed.Add(1)
	}
}

// Churn counts created and closed objects.
type Churn struct {
	ConnectionsCreated, ConnectionsClosed        atomic.Uint64
	ChannelsCreated, ChannelsClosed              atomic.Uint64
	QueuesDeclared, QueuesCreated, QueuesDeleted atomic.Uint64
}

// Dead counts the messages that queues dead-lettered or dropped. On a nil *Dead, Add does nothing.
type Dead struct {
	counts [reasons][2][strategies]atomic.Uint64
}

// Reason is the reason why a queue removed a message.
type Reason uint8

// Reasons for removing a message.
const (
	Expired Reason = iota
	Rejected
	MaxLength
	DeliveryLimit
	reasons
)

// Strategy is the dead-letter strategy that applied to the message.
type Strategy uint8

// Dead-letter strategies. Disabled means that the queue dropped the message.
const (
	Disabled Strategy = iota
	AtMostOnce
	AtLeastOnce
	strategies
)

// Add counts a message.
func (d *Dead) Add(r Reason, quorum bool, s Strategy) {
	if d != nil {
		d.counts[r][index(quorum)][s].Add(1)
	}
}

// Of returns the number of messages with the given reason, queue type and strategy.
func (d *Dead) Of(r Reason, quorum bool, s Strategy) uint64 {
	return d.counts[r][index(quorum)][s].Load()
}

func index(quorum bool) int {
	if quorum {
		return 1
	}
	return 0
}
