package vhost

import (
	"sync"
	"sync/atomic"
)

// lock guards the maps, and counts how often they may have changed.
type lock struct {
	sync.RWMutex
	changes atomic.Uint64
}

// Unlock ends a change.
func (l *lock) Unlock() {
	l.changes.Add(1)
	l.RWMutex.Unlock()
}

// Generation changes whenever an exchange, a queue or a binding does, so that whoever remembers a route knows when to ask
// again. It is never zero.
func (v *VHost) Generation() uint64 { return v.mu.changes.Load() + 1 }
