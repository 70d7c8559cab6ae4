package registry

import "sync"

// idBlock is how many numbers are taken at a time. Those that are left of a block when the process ends are lost, which
// matters to nobody: there are enough.
const idBlock = 1000

// numbers is the document that says which numbers have been taken.
const numbers = "numbers"

// ids gives each queue a number of its own, which no other has had before.
type ids struct {
	mu    sync.Mutex
	taken taken  // as it is kept
	last  uint64 // that was given away
}

type taken struct {
	UpTo uint64 `json:"up_to"`
}

func (r *Registry) loadIDs() error {
	for d, err := range All[taken](r, numbers, 0) {
		if err != nil {
			return err
		}
		r.ids.taken = d.Value
	}
	r.ids.last = r.ids.taken.UpTo
	return nil
}

// QueueID returns a number that no queue has had before. That it is taken is kept no later than anything the queue has.
func (r *Registry) QueueID() uint64 {
	r.ids.mu.Lock()
	defer r.ids.mu.Unlock()
	if r.ids.last == r.ids.taken.UpTo {
		r.ids.taken.UpTo += idBlock
		r.Set(r.ids.taken, numbers)
	}
	r.ids.last++
	return r.ids.last
}
