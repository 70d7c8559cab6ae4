package coverart

import (
	"context"
	"sync"
	"time"
)

// DefaultGrace is the grace period of the real indexer.
const DefaultGrace = 10 * time.Second

// grace makes one piece of work of a burst of equal events. MusicBrainz says
// the same several times when an edit touches a release in several places.
//
//	event ─► first of its kind ─► waits ─► works, its own outcome
//	event ─► same kind, while the first waits ─► done: the first will do it
//	event ─► same kind, while the first works ─► first of the next burst
//
// The others are acknowledged at once, and nothing hangs on them: the first is
// not acknowledged before the work is done, so if this process dies the broker
// still has it. The work starts after the last of them came, so it covers them.
//
// The alternative, to let all of them wait and share the outcome, would hold a
// handler per duplicate, and when the work fails retry it once per duplicate.
type grace struct {
	mu      sync.Mutex
	waiting map[string]struct{}
}

// wait returns true when the caller is to do the work, after period; false
// when somebody else will. The error is that ctx has ended.
func (g *grace) wait(ctx context.Context, period time.Duration, kind string) (first bool, err error) {
	if period <= 0 {
		return true, nil
	}
	g.mu.Lock()
	if _, found := g.waiting[kind]; found {
		g.mu.Unlock()
		return false, nil
	}
	if g.waiting == nil {
		g.waiting = map[string]struct{}{}
	}
	g.waiting[kind] = struct{}{}
	g.mu.Unlock()

	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.waiting, kind)
	}()
	timer := time.NewTimer(period)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
}
