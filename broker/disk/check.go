package disk

import (
	"fmt"

	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// Checked is the result of [Check] or [Salvage].
type Checked struct {
	Damage []string // damage per file; nil if the files are intact
	Queues []CheckedQueue
	Aside  string // directory to which Salvage moved the old files
}

// CheckedQueue is a durable queue in a data directory.
type CheckedQueue struct {
	VHost, Name string // empty if the declaration is unreadable; the messages are then lost
	Expected    int    // number of messages according to the stored counters; -1 if the counters are unreadable
	Found       int    // number of readable messages
}

// Check reads all data in a data directory and reports damage. It does not change the directory. No broker may use the
// directory during the check. Damage is not an error: Check returns an error only if it cannot check the directory.
func Check(dir string) (Checked, error) {
	r, err := diskstore.Check(diskstore.Options{Dir: dir})
	if err != nil {
		return Checked{}, fmt.Errorf("broker: check: %w", err)
	}
	return checked(r), nil
}

// Salvage rebuilds a damaged data directory from its readable data. No broker may use the directory at the same time.
// It moves the old files to a subdirectory of the data directory, and needs free disk space for a second copy of the
// messages. It marks all messages as redelivered. Messages that were already acknowledged may reappear.
func Salvage(dir string) (Checked, error) {
	r, err := diskstore.Salvage(diskstore.Options{Dir: dir}, vhost.Complete)
	if err != nil {
		return Checked{}, fmt.Errorf("broker: salvage: %w", err)
	}
	return checked(r), nil
}

func checked(r diskstore.Report) Checked {
	c := Checked{Aside: r.Aside}
	for _, d := range r.Damage {
		c.Damage = append(c.Damage, d.String())
	}
	names := vhost.QueueNames(r.Documents)
	for _, q := range r.Queues {
		name := names[q.Queue]
		c.Queues = append(c.Queues, CheckedQueue{VHost: name[0], Name: name[1], Expected: q.Expected, Found: q.Found})
	}
	return c
}
