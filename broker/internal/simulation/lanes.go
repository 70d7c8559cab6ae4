package simulation

import (
	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// lanesName is the design of a worker whose queue is divided into lanes.
const lanesName = "lanes"

func init() {
	designs = append(designs, design{Name: lanesName, Copies: true, Quorum: true, Marks: true, Build: func(w Work) built {
		const lanes = 3
		b := plain(w, nil, byPolicy(w))
		b.config.Lanes, b.config.Strategy.Route = lanes, topology.Lanes{Count: lanes}
		b.queueOf = func(key string) string { return reprise.LaneQueue(w.Name, key, lanes) }
		b.key = b.queueOf("key0") // for faults
		return b
	}})
	RegisterCheck(Check{
		Promise: "a retry returns only to the queue that delivered the message",
		In:      "docs/guarantees.md", Check: checkLanes,
	})
}

// checkLanes compares the lane of each parked message with the lane of its last attempt, which its headers name.
func checkLanes(l *Life, promise string) {
	l.eachMessage(func(w Work, _ design, b built, m *Message) {
		if w.Design != lanesName {
			return
		}
		for _, lane := range m.FailedIn {
			if lane != b.queueOf(m.Key) {
				l.Broken(promise, "published to %s, last attempt in %v: %s", b.queueOf(m.Key), lane, m.History())
			}
		}
	})
}
