package vhost

import (
	"sync"

	"github.com/reprisemq/reprise/broker/internal/queue"
)

// letters sends the dead letters of all queues, one queue after the other and a few at a time, so that those who have many
// do not hold up the rest. Its goroutine runs while there is something to send.
type letters struct {
	mu      sync.Mutex
	queues  []*queue.Queue // that have dead letters
	held    bool           // until release
	running bool
	closed  bool
	done    sync.WaitGroup
}

// ask has the dead letters of a queue sent. The queue asks once, and again only after it was told that it has no more.
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

// release starts sending. While a broker loads its virtual hosts, dead letters are held: the queues and bindings that they
// need may not be loaded yet.
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

// next returns the queue whose turn it is, or nil at the end.
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

// close ends the sending, and waits for its end.
func (l *letters) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.done.Wait()
}
