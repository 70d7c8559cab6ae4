package load

import (
	"fmt"
	"sync"
)

// window limits the number of unconfirmed messages of a publisher.
type window struct {
	size int64

	// Only the goroutine that reads from the connection uses these fields.
	seen  bitset
	low   int64 // the lowest unconfirmed delivery tag
	fresh int64 // number of confirms since the last flush

	mu        sync.Mutex
	moved     *sync.Cond
	sent      int64
	confirmed int64
	closed    bool
}

func newWindow(size int) *window {
	w := &window{size: int64(size), low: 1}
	w.moved = sync.NewCond(&w.mu)
	return w
}

// reserve waits until the window has room for a message. It then counts as sent as many messages as fit, but no more than
// the parameter most, and returns their number. After close, it returns 0.
func (w *window) reserve(most int64) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.closed && w.sent-w.confirmed >= w.size {
		w.moved.Wait()
	}
	if w.closed {
		return 0
	}
	n := min(most, w.size-(w.sent-w.confirmed))
	w.sent += n
	return n
}

// ack records the confirm of the message tag or, if multiple is set, of all messages up to tag.
func (w *window) ack(tag uint64, multiple bool) error {
	n := int64(tag)
	if n-w.low > furthest {
		return fmt.Errorf("unexpected confirm of message %d: the first unconfirmed message is %d", tag, w.low)
	}
	if multiple {
		for ; w.low <= n; w.low++ {
			if w.seen.add(w.low) {
				w.fresh++
			}
		}
	} else if !w.seen.add(n) {
		return fmt.Errorf("message %d was confirmed twice", tag)
	} else {
		w.fresh++
	}
	for w.contains(w.low) {
		w.low++
	}
	return nil
}

func (w *window) contains(n int64) bool {
	word := int(n / 64)
	return word < len(w.seen) && w.seen[word]&(1<<(n%64)) != 0
}

// flush removes from the window the messages confirmed since the last flush, and returns their number.
func (w *window) flush() (fresh int64, err error) {
	if w.fresh == 0 {
		return 0, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	fresh, w.fresh = w.fresh, 0
	w.confirmed += fresh
	w.moved.Signal()
	if w.confirmed > w.sent {
		return fresh, fmt.Errorf("%d messages are confirmed, but only %d were sent", w.confirmed, w.sent)
	}
	return fresh, nil
}

func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.moved.Broadcast()
}
