// Package nullbroker answers AMQP clients as a broker would for which all is well,
// and does nothing else: what is published to a queue goes to one of its
// consumers, or nowhere, and is confirmed. There is no store, no routing beyond
// the name of the queue, no prefetch, no memory of what was delivered.
//
// It is as little as a Go program on the same codec can do for a message, and so
// the limit that a broker in Go is held against.
package nullbroker

import (
	"errors"
	"net"
	"sync"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Server is a null broker.
type Server struct {
	mu     sync.RWMutex
	queues map[string]*queue
	conns  map[*conn]struct{}
	ended  bool
	wait   sync.WaitGroup
}

// queue is a list of who consumes, in turn.
type queue struct {
	mu        sync.Mutex
	consumers []*consumer
	next      int
}

type consumer struct {
	conn    *conn
	channel uint16
	tag     string
	queue   string
	number  uint64 // of the delivery; each consumer counts for itself
}

// New returns a null broker.
func New() *Server {
	return &Server{queues: make(map[string]*queue), conns: make(map[*conn]struct{})}
}

// Serve accepts connections until the listener is closed.
func (s *Server) Serve(l net.Listener) error {
	for {
		nc, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		c := &conn{server: s, net: nc, out: newOutbox(), publishing: make(map[uint16]*publishing)}
		if !s.add(c) {
			_ = nc.Close()
			return nil
		}
	}
}

func (s *Server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.conns[c] = struct{}{}
	s.wait.Go(func() {
		_ = c.serve() // a client that goes away, or makes no sense, has no one to be told
		c.out.finish()
		s.remove(c)
	})
	s.wait.Go(func() {
		_ = c.out.run(c.net)
		_ = c.net.Close()
	})
	return true
}

// Close ends all connections and waits until they have. The listeners are the
// caller's to close.
func (s *Server) Close() {
	s.mu.Lock()
	s.ended = true
	for c := range s.conns {
		_ = c.net.Close()
	}
	s.mu.Unlock()
	s.wait.Wait()
}

// queue returns a queue, which need not have been declared.
func (s *Server) queue(name []byte) *queue {
	s.mu.RLock()
	q := s.queues[string(name)]
	s.mu.RUnlock()
	if q != nil {
		return q
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q = s.queues[string(name)]; q == nil {
		q = &queue{}
		s.queues[string(name)] = q
	}
	return q
}

// remove forgets a connection and its consumers.
func (s *Server) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	for _, q := range s.queues {
		q.remove(c)
	}
}

func (q *queue) remove(c *conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := make([]*consumer, 0, len(q.consumers))
	for _, consumer := range q.consumers {
		if consumer.conn != c {
			kept = append(kept, consumer)
		}
	}
	q.consumers = kept
}

func (q *queue) add(c *consumer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.consumers = append(q.consumers, c)
}

// take returns whose turn it is, or nil, and the number of the delivery.
func (q *queue) take() (*consumer, uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.consumers) == 0 {
		return nil, 0
	}
	q.next++
	c := q.consumers[q.next%len(q.consumers)]
	c.number++
	return c, c.number
}

// answer is what a method gets; nil: nothing.
func (c *conn) answer(channel uint16, m amqpwire.Method) amqpwire.Method {
	switch m := m.(type) {
	case *amqpwire.ConnectionOpen:
		return &amqpwire.ConnectionOpenOk{}
	case *amqpwire.ConnectionClose:
		return &amqpwire.ConnectionCloseOk{}
	case *amqpwire.ChannelOpen:
		return &amqpwire.ChannelOpenOk{}
	case *amqpwire.ChannelClose:
		return &amqpwire.ChannelCloseOk{}
	case *amqpwire.ExchangeDeclare:
		return &amqpwire.ExchangeDeclareOk{}
	case *amqpwire.QueueDeclare:
		return &amqpwire.QueueDeclareOk{Queue: m.Queue}
	case *amqpwire.QueueBind:
		return &amqpwire.QueueBindOk{}
	case *amqpwire.QueuePurge:
		return &amqpwire.QueuePurgeOk{}
	case *amqpwire.QueueDelete:
		return &amqpwire.QueueDeleteOk{}
	case *amqpwire.BasicQos:
		return &amqpwire.BasicQosOk{}
	case *amqpwire.ConfirmSelect:
		c.publishingOn(channel).confirms = true
		return &amqpwire.ConfirmSelectOk{}
	case *amqpwire.BasicCancel:
		return &amqpwire.BasicCancelOk{ConsumerTag: m.ConsumerTag}
	}
	return nil
}
