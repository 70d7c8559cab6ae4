package load

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// admin declares, inspects and deletes the queues of a run over a separate connection.
type admin struct {
	o       *Options
	link    *link
	channel uint16
}

// unexpected is a handler that returns an error for any frame other than the awaited reply.
type unexpected struct{}

func (unexpected) frame(f amqpwire.Frame, _ int64) error {
	return fmt.Errorf("the broker refused the request%s", reason(f))
}
func (unexpected) flush() {}

func newAdmin(o *Options) (*admin, error) {
	l, err := open(o)
	if err != nil {
		return nil, err
	}
	a := &admin{o: o, link: l}
	if a.channel, err = l.channel(unexpected{}); err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// close closes the connection without waiting for the reply.
func (a *admin) close() {
	_ = a.link.send(0, &amqpwire.ConnectionClose{ReplyCode: 200, ReplyText: "done"})
	_ = a.link.conn.Close()
}

// declare deletes the queues and declares them again.
func (a *admin) declare() error {
	if err := a.remove(); err != nil {
		return err
	}
	for i := range a.o.Queues {
		in := amqpwire.Table{{Name: "x-queue-type", Value: a.o.QueueType}}
		if a.o.TTL > 0 {
			if err := a.declareQueue(a.o.outName(i), in); err != nil {
				return err
			}
			in = append(in[:1:1],
				amqpwire.Field{Name: "x-message-ttl", Value: a.o.TTL.Milliseconds()},
				amqpwire.Field{Name: "x-dead-letter-exchange", Value: ""},
				amqpwire.Field{Name: "x-dead-letter-routing-key", Value: a.o.outName(i)})
		}
		if err := a.declareQueue(a.o.queueName(i), append(in[:len(in):len(in)], a.o.Arguments...)); err != nil {
			return err
		}
	}
	return nil
}

func (a *admin) declareQueue(name string, arguments amqpwire.Table) error {
	err := a.link.call(a.channel, &amqpwire.QueueDeclare{Queue: name, Durable: true, Arguments: arguments}, &amqpwire.QueueDeclareOk{})
	if err != nil {
		return fmt.Errorf("queue %q: %w", name, err)
	}
	return nil
}

func (a *admin) remove() error {
	for i := range a.o.Queues {
		for _, name := range a.names(i) {
			if err := a.link.call(a.channel, &amqpwire.QueueDelete{Queue: name}, &amqpwire.QueueDeleteOk{}); err != nil {
				return fmt.Errorf("queue %q: %w", name, err)
			}
		}
	}
	return nil
}

func (a *admin) names(i int) []string {
	if a.o.TTL > 0 {
		return []string{a.o.queueName(i), a.o.outName(i)}
	}
	return []string{a.o.queueName(i)}
}

const depthTimeout = 2 * time.Second

// Depth returns the number of messages in an existing queue. If Depth returns no error, the broker is ready. If the
// broker does not reply within two seconds of accepting the connection, Depth returns an error.
func Depth(url, queue string) (messages int, err error) {
	o, err := Options{URL: url, Count: 1, Dial: func(network, address string) (net.Conn, error) {
		conn, err := net.DialTimeout(network, address, depthTimeout)
		if err != nil {
			return nil, err
		}
		return conn, conn.SetDeadline(time.Now().Add(depthTimeout))
	}}.complete()
	if err != nil {
		return 0, err
	}
	a, err := newAdmin(&o)
	if err != nil {
		return 0, err
	}
	defer a.close()
	return a.depth(queue)
}

func (a *admin) depth(queue string) (int, error) {
	var ok amqpwire.QueueDeclareOk
	if err := a.link.call(a.channel, &amqpwire.QueueDeclare{Queue: queue, Passive: true}, &ok); err != nil {
		return 0, fmt.Errorf("queue %q: %w", queue, err)
	}
	return int(ok.MessageCount), nil
}

// empty checks that the queues are empty. It waits up to Options.Stall, because a broker can report an outdated message
// count, in particular for a replicated queue.
func (a *admin) empty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.o.Stall)
	defer cancel()
	for i := range a.o.Queues {
		for _, name := range a.names(i) {
			for {
				n, err := a.depth(name)
				if err != nil {
					return err
				}
				if n == 0 {
					break
				}
				select {
				case <-time.After(10 * time.Millisecond):
				case <-ctx.Done():
					return fmt.Errorf("queue %q must be empty after the last delivery: got %d messages", name, n)
				}
			}
		}
	}
	return nil
}
