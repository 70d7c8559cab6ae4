package idempotent

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// DefaultMaxKeys is the default of Memory.MaxKeys. 100,000 keys need about 30 MB.
const DefaultMaxKeys = 100_000

// Memory is a Store in the memory of this process. Use it for tests, and for the workers of one process if the loss of
// the keys at a restart is acceptable. The zero value is an empty store, ready for use. Memory uses the clock of package
// time, so it works in a testing/synctest bubble.
type Memory struct {
	// MaxKeys is the maximum number of claimed and completed keys. If the store is full, it forgets the completed keys
	// that expire first. If all keys are claimed, Claim and Complete return ErrFull for another key. Set MaxKeys before
	// the first use. Default: 100,000.
	MaxKeys int

	mu     sync.Mutex
	keys   map[string]*entry
	claims expiry // the claimed keys, the next to expire first
	dones  expiry // the completed keys, the next to expire first
}

// entry is a key that is claimed or done until it expires.
type entry struct {
	key, token string
	done       bool
	expires    time.Time
	index      int // in its expiry heap
}

var _ Store = (*Memory)(nil)

// Claim implements Store.
func (s *Memory) Claim(ctx context.Context, key, token string, lease time.Duration) (Claim, error) {
	if err := ctx.Err(); err != nil {
		return Claim{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	e := s.get(key, now)
	switch {
	case e == nil:
		if !s.makeRoom() {
			return Claim{}, ErrFull
		}
		s.put(&entry{key: key, token: token, expires: now.Add(lease)})
	case e.done:
		return Claim{State: Done}, nil
	case e.token != token:
		return Claim{State: Busy, Left: e.expires.Sub(now)}, nil
	default:
		e.expires = now.Add(lease)
		heap.Fix(&s.claims, e.index)
	}
	return Claim{State: Claimed}, nil
}

// Complete implements Store.
func (s *Memory) Complete(ctx context.Context, key, token string, retention time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if e := s.get(key, now); e != nil {
		if e.token != token {
			return ErrLost
		}
		s.remove(e)
	}
	if !s.makeRoom() {
		return ErrFull
	}
	s.put(&entry{key: key, token: token, done: true, expires: now.Add(retention)})
	return nil
}

// Release implements Store.
func (s *Memory) Release(ctx context.Context, key, token string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.get(key, time.Now()); e != nil && !e.done && e.token == token {
		s.remove(e)
	}
	return nil
}

// Len returns the number of keys in the store.
func (s *Memory) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(time.Now())
	return len(s.keys)
}

// get returns the entry of a key, or nil if the key is free.
func (s *Memory) get(key string, now time.Time) *entry {
	s.expire(now)
	return s.keys[key]
}

// expire removes the expired keys. Each key is removed only once, so there are no more removals than insertions.
func (s *Memory) expire(now time.Time) {
	for _, h := range []*expiry{&s.claims, &s.dones} {
		for len(*h) > 0 && !(*h)[0].expires.After(now) {
			s.remove((*h)[0])
		}
	}
}

// makeRoom reports whether the store has room for another key. It removes completed keys if necessary.
func (s *Memory) makeRoom() bool {
	most := s.MaxKeys
	if most <= 0 {
		most = DefaultMaxKeys
	}
	for len(s.keys) >= most {
		if len(s.dones) == 0 {
			return false
		}
		s.remove(s.dones[0])
	}
	return true
}

func (s *Memory) put(e *entry) {
	if s.keys == nil {
		s.keys = make(map[string]*entry)
	}
	s.keys[e.key] = e
	heap.Push(s.heap(e), e)
}

func (s *Memory) remove(e *entry) {
	delete(s.keys, e.key)
	heap.Remove(s.heap(e), e.index)
}

func (s *Memory) heap(e *entry) *expiry {
	if e.done {
		return &s.dones
	}
	return &s.claims
}

// expiry implements heap.Interface.
type expiry []*entry

func (h expiry) Len() int           { return len(h) }
func (h expiry) Less(i, j int) bool { return h[i].expires.Before(h[j].expires) }
func (h expiry) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *expiry) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *expiry) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
