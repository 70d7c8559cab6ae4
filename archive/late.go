package archive

import (
	"context"
	"errors"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/console"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/archive/waiting"
	"github.com/reprisemq/reprise/internal/protocol"
)

// late is an Archive as the console uses it, which may not be connected yet. It implements the interfaces Replayer, Fleet
// and Rescheduler of the configuration of the console.
type late Archive

var errNotConnected = errors.New("console is not connected to the broker yet (see its log)")

func (a *late) link() *link { return a.phase.Load().link }

func (a *late) broker() *reprise.Client {
	if l := a.link(); l != nil {
		return l.client
	}
	return nil
}

// doubts returns the queues that may be dead-letter queues and are not emptied.
func (a *late) doubts() []console.DoubtfulQueue {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.doubtful
}

// Wake does nothing without a connection, because the replayer looks for new replays when it starts.
func (a *late) Wake() {
	if l := a.link(); l != nil {
		l.replayer.Wake()
	}
}

func (a *late) Workers() []fleet.Worker {
	if l := a.link(); l != nil {
		return l.fleet.Workers()
	}
	return nil
}

func (a *late) Err() error {
	if l := a.link(); l != nil {
		return l.fleet.Err()
	}
	return errNotConnected
}

func (a *late) Control(ctx context.Context, command protocol.Command) error {
	if l := a.link(); l != nil {
		return l.fleet.Control(ctx, command)
	}
	return errNotConnected
}

func (a *late) ControlKey(ctx context.Context, k reprise.KeyControl, wait time.Duration) (effect bool, err error) {
	if l := a.link(); l != nil {
		return l.fleet.ControlKey(ctx, k, wait)
	}
	return false, errNotConnected
}

func (a *late) Blocked() []waiting.BlockedQueue {
	if l := a.link(); l != nil {
		return l.rescheduler.Blocked()
	}
	return nil
}

func (a *late) Act(ctx context.Context, act waiting.Act, who failed.Actor) (waiting.Result, error) {
	if l := a.link(); l != nil {
		return l.rescheduler.Act(ctx, act, who)
	}
	return waiting.Result{}, errNotConnected
}
