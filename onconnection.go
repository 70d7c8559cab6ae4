package reprise

import "sync"

// mostKnown bounds how many names are remembered of a connection. Beyond it all are forgotten.
const mostKnown = 10_000

// onConnection is what is known as long as one generation of a connection lasts.
type onConnection[K comparable] struct {
	mu   sync.Mutex
	gen  uint64
	seen map[K]struct{}
}

func (o *onConnection[K]) knows(gen uint64, key K) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, seen := o.seen[key]
	return seen && gen == o.gen
}

// note takes in a key, and forgets all those of older generations, and all others where
// there are mostKnown: a program may schedule messages to any number of queues, and what
// was forgotten is only asked again.
func (o *onConnection[K]) note(gen uint64, key K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if gen < o.gen {
		return
	}
	if gen > o.gen || o.seen == nil || len(o.seen) >= mostKnown {
		o.gen, o.seen = gen, map[K]struct{}{}
	}
	o.seen[key] = struct{}{}
}

func (o *onConnection[K]) forget(key K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.seen, key)
}
