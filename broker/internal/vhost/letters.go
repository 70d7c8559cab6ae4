package vhost

import (
	"sync"

	"github.com/reprisemq/reprise/broker/internal/queue"
)

// letters sends the dead letters of all queues. It sends a few messages per queue in turn, so that a queue with many dead
// letters does not block the others. Its goroutine runs only while there are dead letters.
type letters struct {
	mu      sync.Mutex
	queues  []*queue.Queue // queues that have dead letters
	held    bool           // true until release
	running bool
	closed  bool
	done    sync.WaitGroup
}

// ask requests that the dead letters of a queue are sent. The queue calls it once, and again only after SendDeadLetters
// has reported that no dead letters remain.
func (l *letters) ask(q *queue.Queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.queues = append(l.queues, q)
	l.start()
}

func (l *letters) start() {
	if !l.held && !l.running {
		l.running = true
		l.done.Go(l.run)
	}
}

// release starts the sending. The broker holds dead letters while it loads its virtual hosts, because their queues and
// bindings may not be loaded yet.
func (l *letters) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held = false; len(l.queues) > 0 && !l.closed {
		l.start()
	}
}

func (l *letters) run() {
	for q := l.next(); q != nil; q = l.next() {
		if q.SendDeadLetters() {
			l.again(q)
		}
	}
}

// next returns the next queue in turn, or nil if none remains.
func (l *letters) next() *queue.Queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.queues) == 0 {
		l.running = false
		return nil
	}
	q := l.queues[0]
	l.queues[0] = nil
	l.queues = l.queues[1:]
	return q
}

func (l *letters) again(q *queue.Queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queues = append(l.queues, q)
}

// close stops the sending and waits until the goroutine has returned.
func (l *letters) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.done.Wait()
}
