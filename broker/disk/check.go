package disk

import (
	"fmt"

	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/vhost"
)

// Checked is what Check, or Salvage, has found in a data directory.
type Checked struct {
	Damage []string // what is wrong with which file; nil: nothing
	Queues []CheckedQueue
	Aside  string // the directory that Salvage has moved the old files to
}

// CheckedQueue is a durable queue in a data directory.
type CheckedQueue struct {
	VHost, Name string // empty: its declaration cannot be read, and its messages are not kept
	Expected    int    // messages, by the counts that are kept with them; -1: these cannot be read
	Found       int    // messages that can be read
}

// Check reads everything in a data directory that no broker runs on, and changes nothing. An error says that the directory
// could not be checked; damage is none.
func Check(dir string) (Checked, error) {
	r, err := diskstore.Check(diskstore.Options{Dir: dir})
	if err != nil {
		return Checked{}, fmt.Errorf("broker: check: %w", err)
	}
	return checked(r), nil
}

// Salvage makes a data directory of what can be read in a damaged one that no broker runs on. It moves the old files aside,
// into a directory within the data directory, and needs room for the messages once more. All messages come as redelivered;
// some that had been acknowledged may come again.
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
