// Package nullbroker implements an AMQP broker that does as little work as possible. It confirms each published
// message, and sends it to one consumer of the queue, or drops it if the queue has no consumers. It does not store
// messages, route by bindings, limit deliveries by prefetch, or remember deliveries.
//
// Its message rate is an upper limit for any Go broker with the same codec.
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

// queue contains the consumers of a queue, which receive messages in turn.
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
	number  uint64 // number of the last delivery, from 1
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
		c := &conn{server: s, net: nc, out: newOutbox(), publishing: make(map[uint16]*publishState)}
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
		_ = c.serve() // errors of lost or invalid clients are not reported
		c.out.finish()
		s.remove(c)
	})
	s.wait.Go(func() {
		_ = c.out.run(c.net)
		_ = c.net.Close()
	})
	return true
}

// Close closes all connections and waits for their goroutines. The caller closes the listeners.
func (s *Server) Close() {
	s.mu.Lock()
	s.ended = true
	for c := range s.conns {
		_ = c.net.Close()
	}
	s.mu.Unlock()
	s.wait.Wait()
}

// queue returns the queue with the given name, and creates it if it is missing.
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

// remove removes a connection and its consumers.
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

// take returns the next consumer in turn and its next delivery tag, or nil and 0 if the queue has no consumers.
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

// answer returns the reply to m, or nil if m has no reply.
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
