package disk

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// QueueCount is the number of messages in a durable queue.
type QueueCount struct {
	VHost, Name string
	Messages    int
}

// Count returns the durable queues in a data directory with their message counts, sorted by virtual host and name. No
// broker may use the directory at the same time. Count does not change the directory. If the directory does not exist,
// Count returns no queues.
func Count(dir string) ([]QueueCount, error) {
	documents, counts, err := diskstore.Survey(dir)
	if err != nil {
		return nil, fmt.Errorf("broker: count: %w", err)
	}
	var all []QueueCount
	for id, name := range vhost.QueueNames(documents) {
		all = append(all, QueueCount{VHost: name[0], Name: name[1], Messages: counts[id]})
	}
	slices.SortFunc(all, func(a, b QueueCount) int { return cmp.Or(cmp.Compare(a.VHost, b.VHost), cmp.Compare(a.Name, b.Name)) })
	return all, nil
}

// Copy copies a backup, or a data directory that no broker uses. The target directory must be empty or must not exist.
func Copy(from, to string) error {
	if err := diskstore.Copy(from, to); err != nil {
		return fmt.Errorf("broker: copy: %w", err)
	}
	return nil
}
