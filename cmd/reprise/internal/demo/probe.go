package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/topology/preset"
)

// queueNames are the queues of the design, in the order they are shown.
var queueNames = []string{
	preset.CoverArtIndexQueue, preset.CoverArtDeleteQueue, preset.CoverArtMoveQueue,
	preset.CoverArtRetryQueue, preset.CoverArtFailedQueue,
}

// probe asks the broker what is in its queues, over a connection of its own
// and with nothing but AMQP. Safe for concurrent use.
type probe struct {
	dial func() (*amqp.Connection, error)

	mu   sync.Mutex // one question at a time
	conn *amqp.Connection
	ch   *amqp.Channel
}

func newProbe(url string, dial func(ctx context.Context, network, addr string) (net.Conn, error)) *probe {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName("reprise demo probe")
	return &probe{dial: func() (*amqp.Connection, error) {
		return amqp.DialConfig(url, amqp.Config{
			Heartbeat: 10 * time.Second, Properties: properties,
			Dial: func(network, addr string) (net.Conn, error) {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				return dial(ctx, network, addr)
			},
		})
	}}
}

// channel returns a channel that is open, as far as one can know: the broker
// may have gone and come back since the last question. p.mu is held.
func (p *probe) channel() (*amqp.Channel, error) {
	if p.conn == nil || p.conn.IsClosed() {
		conn, err := p.dial()
		if err != nil {
			return nil, fmt.Errorf("demo: connect to the broker: %w", err)
		}
		p.conn, p.ch = conn, nil
	}
	if p.ch == nil || p.ch.IsClosed() {
		ch, err := p.conn.Channel()
		if err != nil {
			return nil, fmt.Errorf("demo: open a channel: %w", err)
		}
		p.ch = ch
	}
	return p.ch, nil
}

func (p *probe) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return nil
	}
	if err := p.conn.Close(); err != nil && !errors.Is(err, amqp.ErrClosed) {
		return fmt.Errorf("demo: close the probe: %w", err)
	}
	return nil
}

// inspect asks for every queue. p.mu is held.
func (p *probe) inspect() ([]amqp.Queue, error) {
	ch, err := p.channel()
	if err != nil {
		return nil, err
	}
	var all []amqp.Queue
	for _, name := range queueNames {
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		if err != nil {
			return nil, fmt.Errorf("demo: ask for queue %s: %w", name, err)
		}
		all = append(all, q)
	}
	return all, nil
}

// depths returns what the queues have ready; what is unacked AMQP does not tell.
func (p *probe) depths() ([]Depth, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	queues, err := p.inspect()
	var all []Depth
	for _, q := range queues {
		all = append(all, Depth{Name: q.Name, Ready: q.Messages, Unacked: Unknown})
	}
	return all, err
}

// unused returns an error when somebody else works with the queues, or left
// work in them: the demo would do it, with a store of its own.
func (p *probe) unused() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	queues, err := p.inspect()
	for _, q := range queues {
		if q.Consumers > 0 || q.Messages > 0 && q.Name != preset.CoverArtFailedQueue {
			return fmt.Errorf("demo: queue %s has %d messages and %d consumers already: "+
				"give the demo a virtual host of its own (rabbitmqctl add_vhost demo; amqp://…/demo)", q.Name, q.Messages, q.Consumers)
		}
	}
	return err
}

// contents reads every message of the queues, in this order, and gives them
// back at the end. Until then the broker holds them for the probe, so that none
// can expire out of one queue and be met again in another.
func (p *probe) contents(queues ...string) (map[string][]amqp.Delivery, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ch, err := p.channel()
	if err != nil {
		return nil, err
	}
	found := map[string][]amqp.Delivery{}
	for _, name := range queues {
		for {
			d, ok, err := ch.Get(name, false)
			if err != nil {
				return nil, fmt.Errorf("demo: read queue %s: %w", name, err)
			}
			if !ok {
				break
			}
			found[name] = append(found[name], d)
		}
	}
	if err := ch.Close(); err != nil { // gives them back
		return nil, fmt.Errorf("demo: close a channel: %w", err)
	}
	return found, nil
}
