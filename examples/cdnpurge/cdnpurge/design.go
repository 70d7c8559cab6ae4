package cdnpurge

import "github.com/reprisemq/reprise/internal/preset"

// Design is the wait exchange with exponential backoff. The design has no names, so the fields name the exchanges and queues
// (Exchange, Queue, WaitExchange, WaitQueue, FailedQueue, RoutingKeys, Kind, …); First, Factor, Jitter and Max are the backoff.
// Give its Strategy to a worker; its Topology declares all queues. [Published] has the names of the published code.
type Design = preset.CDNPurge

// Published returns the design with the names of the published code: primary-exchange, primary-queue, wait-exchange and
// wait-queue. If the program that declared these objects used the defaults of its client, also set TransientExchanges,
// TransientQueues and AutoDelete to those defaults.
func Published() Design { return preset.CDNPurgePublished() }
