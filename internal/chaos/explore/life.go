package explore

import (
	"errors"
	"slices"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
)

// A Life is the course of a message from its delivery until it is finally settled or redelivered.
type Life struct {
	Name   string
	handle func(m *reprise.Delivery) error

	// frames returns the number of frames in the life. The slice all contains the recorded frames.
	frames func(all []testkit.Crossing) int
}

// The lives.
var (
	// Retry is the life of a message that fails and is retried.
	Retry = Life{
		Name: "retry",
		handle: func(m *reprise.Delivery) error {
			if m.Attempt > 1 {
				return reprise.Park(errScripted)
			}
			return errScripted
		},
		frames: func(all []testkit.Crossing) int {
			first := slices.IndexFunc(all, delivered) + 1
			return first + slices.IndexFunc(all[first:], delivered) + 1
		},
	}

	// Park is the life of a message that is parked immediately.
	Park = Life{
		Name:   "park",
		handle: func(*reprise.Delivery) error { return reprise.Park(errScripted) },
		frames: func(all []testkit.Crossing) int { return len(all) },
	}

	// Done is the life of a message that does not fail. It is the same for all ways.
	Done = Life{
		Name:   "done",
		handle: func(*reprise.Delivery) error { return nil },
		frames: func(all []testkit.Crossing) int { return len(all) },
	}
)

var errScripted = errors.New("scripted failure")

// delivered reports whether c is the last frame of a delivery.
func delivered(c testkit.Crossing) bool { return c.Name == "basic.deliver: body" }
