package vhost

import (
	"sync"
	"sync/atomic"
)

// lock guards the maps. It counts the write locks, because the maps may change under each of them.
type lock struct {
	sync.RWMutex
	changes atomic.Uint64
}

// Unlock counts a change and releases the lock.
func (l *lock) Unlock() {
	l.changes.Add(1)
	l.RWMutex.Unlock()
}

// Generation returns a number that changes with each change of an exchange, a queue or a binding. A caller that caches a
// route compares the numbers to detect an outdated route. The number is zero while equal messages may
// have different routes.
func (v *VHost) Generation() uint64 {
	if v.varying.Load() > 0 {
		return 0
	}
	return v.mu.changes.Load() + 1
}
