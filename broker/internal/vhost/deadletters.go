package vhost

import (
	"sync"

	"github.com/reprisemq/reprise/broker/internal/clock"
	"github.com/reprisemq/reprise/broker/internal/queue"
)

// deadLetterSender sends the dead letters of all queues. It sends a few messages per queue in turn, so that a queue with
// many dead letters does not block other queues. Its goroutine runs only while there are dead letters.
type deadLetterSender struct {
	clock   *clock.Clock // whose moves wait for the sender
	mu      sync.Mutex
	queues  []*queue.Queue // queues that have dead letters
	paused  bool           // true until resume is called
	running bool
	closed  bool
	done    sync.WaitGroup
}

// request adds a queue with dead letters. The queue calls request again only after SendDeadLetters has reported that no dead
// letters remain.
func (l *deadLetterSender) request(q *queue.Queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.queues = append(l.queues, q)
	l.start()
}

func (l *deadLetterSender) start() {
	if !l.paused && !l.running {
		l.running = true
		l.clock.Work(1)
		l.done.Go(l.run)
	}
}

// resume starts the sender. The sender is paused while the broker loads its virtual hosts, because their queues and bindings
// may not be loaded yet.
func (l *deadLetterSender) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused = false; len(l.queues) > 0 && !l.closed {
		l.start()
	}
}

func (l *deadLetterSender) run() {
	for q := l.next(); q != nil; q = l.next() {
		if q.SendDeadLetters() {
			l.requeue(q)
		}
	}
}

// next returns the next queue in turn, or nil if none remains.
func (l *deadLetterSender) next() *queue.Queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.queues) == 0 {
		l.running = false
		l.clock.Work(-1)
		return nil
	}
	q := l.queues[0]
	l.queues[0] = nil
	l.queues = l.queues[1:]
	return q
}

func (l *deadLetterSender) requeue(q *queue.Queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queues = append(l.queues, q)
}

// close stops the sender and waits until its goroutine has returned.
func (l *deadLetterSender) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.done.Wait()
}
