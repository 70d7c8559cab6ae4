package stats

import "sync/atomic"

// Node is what is counted once for a whole broker.
type Node struct {
	Messages Totals
	Churn    Churn
	Dead     Dead
}

// Churn counts what comes and goes.
type Churn struct {
	ConnectionsCreated, ConnectionsClosed        atomic.Uint64
	ChannelsCreated, ChannelsClosed              atomic.Uint64
	QueuesDeclared, QueuesCreated, QueuesDeleted atomic.Uint64
}

// Dead counts the messages that queues have given up. The nil Dead counts nothing.
type Dead struct {
	counts [reasons][2][strategies]atomic.Uint64
}

// Reason is why a queue gave a message up.
type Reason uint8

// The reasons.
const (
	Expired Reason = iota
	Rejected
	MaxLength
	DeliveryLimit
	reasons
)

// Strategy is what became of the message.
type Strategy uint8

// The strategies; Disabled means that it was dropped.
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

// Of returns how many there were.
func (d *Dead) Of(r Reason, quorum bool, s Strategy) uint64 {
	return d.counts[r][index(quorum)][s].Load()
}

func index(quorum bool) int {
	if quorum {
		return 1
	}
	return 0
}
