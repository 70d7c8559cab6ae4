package idempotent

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// DefaultMaxKeys is how many keys a Memory holds unless it says otherwise: some
// 30 MB.
const DefaultMaxKeys = 100_000

// Memory is a Store in this process: for tests, and for workers of one process
// that may forget everything when it ends. The zero value is an empty store, ready
// for use. Its clock is package time, so it lives in a testing/synctest bubble.
type Memory struct {
	// MaxKeys is how many keys it holds, claimed or done. When there is no room, it
	// forgets those that are done and have the least time left; if all are claimed,
	// Claim fails with ErrFull. To be set before use. Default 100,000.
	MaxKeys int

	mu     sync.Mutex
	keys   map[string]*entry
	claims expiry // of those that are claimed, and
	dones  expiry // of those that are done, the next to expire first
}

// entry is a key that is not free, unless its time is over.
type entry struct {
	key, token string
	done       bool
	expires    time.Time
	index      int // in its heap
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

// Len is how many keys it holds.
func (s *Memory) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(time.Now())
	return len(s.keys)
}

// get returns a key that is not free, or nil.
func (s *Memory) get(key string, now time.Time) *entry {
	s.expire(now)
	return s.keys[key]
}

// expire drops what has no time left. Each key is dropped once, so it costs no
// more than putting it there did.
func (s *Memory) expire(now time.Time) {
	for _, h := range []*expiry{&s.claims, &s.dones} {
		for len(*h) > 0 && !(*h)[0].expires.After(now) {
			s.remove((*h)[0])
		}
	}
}

// makeRoom says whether there is room for one more.
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

// expiry is a heap.Interface.
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
