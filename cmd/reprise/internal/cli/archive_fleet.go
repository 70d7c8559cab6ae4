package cli

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/topology"
)

// lateFleet is the list of workers for a console that may not be connected yet. It implements console.Fleet.
type lateFleet struct{ list atomic.Pointer[fleet.List] }

var errNotConnected = errors.New("console is not connected to the broker yet (see its log)")

func (l *lateFleet) Workers() []fleet.Worker {
	if list := l.list.Load(); list != nil {
		return list.Workers()
	}
	return nil
}

func (l *lateFleet) Err() error {
	if list := l.list.Load(); list != nil {
		return list.Err()
	}
	return errNotConnected
}

func (l *lateFleet) Control(ctx context.Context, command topology.Command) error {
	if list := l.list.Load(); list != nil {
		return list.Control(ctx, command)
	}
	return errNotConnected
}

// lateRescheduler acts on waiting messages, for a console that may not be connected yet. It implements console.Rescheduler.
type lateRescheduler struct {
	atomic.Pointer[failed.Rescheduler]
}

func (l *lateRescheduler) Blocked() []failed.BlockedQueue {
	if r := l.Load(); r != nil {
		return r.Blocked()
	}
	return nil
}

func (l *lateRescheduler) Act(ctx context.Context, act failed.WaitingAct, who failed.Actor) (failed.WaitingResult, error) {
	if r := l.Load(); r != nil {
		return r.Act(ctx, act, who)
	}
	return failed.WaitingResult{}, errNotConnected
}
