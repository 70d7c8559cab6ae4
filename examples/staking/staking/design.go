package staking

import "github.com/reprisemq/reprise/internal/preset"

// Design is the queues of the staking indexer and their way of retrying. The zero value is the published design; the fields
// are Queues, RetryDelay, DelayTTL and QueueType. Give its Strategy to a worker; its Topology declares all queues.
type Design = preset.Staking
