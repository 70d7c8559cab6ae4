package background

import (
	"time"

	"github.com/reprisemq/reprise/topology"
)

// ReceiveOnly returns the Strategy of workers that only receive messages from a queue. Such a worker requeues a message
// unchanged if it cannot process the message. The strategy declares nothing, and does not read or write marks.
func ReceiveOnly() topology.Strategy {
	return topology.Strategy{Route: requeueRoute{}, Marks: noMarks{}}
}

type requeueRoute struct{}

func (requeueRoute) Topology(string) topology.Topology { return topology.Topology{} }

func (requeueRoute) Wait(topology.Delivery, time.Duration) (topology.Hop, error) {
	return topology.Hop{Way: topology.Requeue}, nil
}

func (requeueRoute) Failed(topology.Delivery) topology.Hop {
	return topology.Hop{Way: topology.Requeue}
}

type noMarks struct{}

func (noMarks) Read(topology.Delivery) topology.History {
	return topology.History{RetriesLeft: topology.Undecided}
}
func (noMarks) Retry(h topology.Table, _ topology.Failure) topology.Table { return h }
func (noMarks) Park(h topology.Table, _ topology.Failure) topology.Table  { return h }
func (noMarks) Owns(string) bool                                          { return false }

// Crashes returns 0, because these workers only store or forward messages, so a message cannot crash the process.
func (noMarks) Crashes(topology.Delivery) int { return 0 }
