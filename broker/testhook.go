package broker

import (
	"net"

	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/broker/internal/vhost"
	"github.com/reprisemq/reprise/internal/amqpwire"
	"github.com/reprisemq/reprise/internal/testhook"
)

func init() {
	testhook.Of = func(b any) testhook.Broker { return insider{b.(*Broker)} }
}

// insider implements [testhook.Broker] for tests.
type insider struct{ *Broker }

func (i insider) Serve(conn net.Conn) error { return i.node.Serve(conn) }

func (i insider) Block(blocked bool) {
	excess := i.node.Memory.Limit() + 1
	if !blocked {
		excess = -excess
	}
	i.node.Memory.Add(excess)
}

func (i insider) Queues() (all []testhook.Queue) {
	for _, v := range i.node.VHosts() {
		for _, q := range v.Queues() {
			all = append(all, insideQueue(v.Name(), q))
		}
	}
	return all
}

func (i insider) Queue(vhost, name string) (testhook.Queue, bool) {
	q := i.queue(vhost, name)
	if q == nil {
		return testhook.Queue{}, false
	}
	return insideQueue(vhost, q), true
}

func insideQueue(vhost string, q *vhost.Queue) testhook.Queue {
	stats, outlook := q.Stats(), q.Outlook()
	return testhook.Queue{
		VHost: vhost, Name: q.Name(),
		Ready: stats.Ready, Unacked: stats.Unacked, Consumers: stats.Consumers, Delayed: stats.Delayed, Dead: stats.Dead,
		Leaving: outlook.Leaving, Expires: outlook.Expires, Due: outlook.Due,
		DeadLetters: q.Config().DeadLetter != nil, Counts: stats.Counts,
	}
}

func (i insider) DeadLetterTarget(vhost, name, key string) (exchange, deadLetterKey string, ok bool) {
	q := i.queue(vhost, name)
	if q == nil || q.Config().DeadLetter == nil {
		return "", "", false
	}
	letter := q.Config().DeadLetter
	if letter.RoutingKey != nil {
		key = *letter.RoutingKey
	}
	return letter.Exchange, key, true
}

func (i insider) queue(host, name string) *vhost.Queue {
	if v := i.node.VHost(host); v != nil {
		return v.FindQueue(name)
	}
	return nil
}

func (i insider) Messages(vhost, name string) (all []testhook.Message) {
	q := i.queue(vhost, name)
	if q == nil {
		return nil
	}
	for _, m := range q.Look() {
		all = append(all, testhook.Message{
			Exchange: m.Message.Exchange, RoutingKey: m.Message.RoutingKey,
			Properties: m.Properties, Body: m.Message.Body, Redelivered: m.Redelivered,
		})
	}
	return all
}

func (i insider) Route(vhost, exchange, key string) (names []string, err error) {
	v := i.node.VHost(vhost)
	if v == nil {
		return nil, nil
	}
	queues, err := v.Route(nil, &queue.Message{Exchange: exchange, RoutingKey: key})
	for _, q := range queues {
		names = append(names, q.Name())
	}
	return names, err
}

func (i insider) Declare(vhost string, d *amqpwire.QueueDeclare) {
	if v := i.node.VHost(vhost); v != nil {
		_, _ = v.DeclareQueue(d, nil, func(string) error { return nil })
	}
}

func (i insider) Publish(host, exchange, key string, properties, body []byte) {
	v := i.node.VHost(host)
	p, err := amqpwire.ParseProperties(properties)
	if v == nil || err != nil {
		return
	}
	m, err := vhost.NewMessage(vhost.Published{
		Exchange: exchange, RoutingKey: key, Properties: properties, Body: body, User: p.UserID,
	})
	if err == nil {
		_, _, _ = v.Publish(m)
	}
}

// Node returns the node, for the tests of packages in the broker folder.
func (i insider) Node() *node.Node { return i.node }
