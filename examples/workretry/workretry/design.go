package workretry

import "github.com/reprisemq/reprise/internal/preset"

// Design is the pair of exchanges and its way of retrying. The zero value is the published design; the fields are RetryDelay,
// Kind, Key, Prefix, QueueType and TransientExchanges. Give its Strategy to a worker; its Topology declares all queues.
type Design = preset.WorkRetry
