package registry

import "sync"

// idBlock is the number of IDs that the registry reserves at a time. When the process exits, the unused IDs of a
// block are lost, which is harmless because there are 2^64 IDs.
const idBlock = 1000

// numbers is the name of the document that records the reserved IDs.
const numbers = "numbers"

// ids assigns an ID to each queue. IDs are never reused, even after a restart.
type ids struct {
	mu    sync.Mutex
	taken taken  // reserved IDs, as saved in the document numbers
	last  uint64 // last assigned ID
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

// QueueID returns an unused queue ID. The reservation becomes durable before the data of the queue, or together with
// it.
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
