package coverart

import "github.com/reprisemq/reprise/internal/preset"

// Design is the queues of the cover art indexer and its way of retrying. The zero value is the published design; the fields
// are Retries, RetryDelay and QueueType. Give its Strategy to a worker; its Topology declares all queues.
type Design = preset.CoverArt
