package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// publisherName is the owner of the publisher's connections.
const publisherName = "publisher"

// publisher is a process that publishes with Reprise.
type publisher struct {
	client *reprise.Client
	acts   atomic.Int32 // number of acts in progress
}

func init() {
	RegisterActor(func(*Life) []Actor { return []Actor{&publisher{}} })
	RegisterOwners(func(Shape) []string { return []string{publisherName} })
	for _, kind := range []struct {
		name   string
		weight int
		most   int
		within time.Duration
	}{
		{"publish", 20, 30, time.Hour}, {"publish-burst", 3, 300, time.Second}, {"publish-batch", 5, 60, 0}, {"publish-in", 5, 20, 4 * time.Hour},
	} {
		RegisterAct(Act{
			Name: kind.name, Weight: kind.weight,
			Draw: func(random *rand.Rand, shape Shape) []Step {
				s := Step{On: oneOf(random, shape.Names()...), N: 1 + random.IntN(kind.most)}
				if kind.within > 0 {
					s.For = between(random, time.Second, kind.within)
				}
				return []Step{s}
			},
			Do: func(l *Life, s Step) {
				p := l.publisher()
				l.Count(kind.name)
				p.act(l, func() { p.publish(l, s) })
			},
		})
	}
	RegisterAct(Act{Name: "publish-unroutable", Weight: 2, Do: func(l *Life, s Step) {
		p := l.publisher()
		l.Count("publish-unroutable")
		l.Go(func() {
			m := l.Book.Add(fmt.Sprintf("%x-0", s.Seed), "", 10)
			p.send(l, m, built{key: "nowhere"})
		})
	}})
}

func (l *Life) publisher() *publisher {
	for _, a := range l.actors {
		if p, ok := a.(*publisher); ok {
			return p
		}
	}
	return nil
}

// Open opens a connection of a plain AMQP client.
func (l *Life) Open(owner string) (*amqp.Connection, error) {
	return amqp.DialConfig(url, amqp.Config{
		Heartbeat: 10 * time.Second,
		Dial:      func(string, string) (net.Conn, error) { return l.Network.Dial(owner) },
	})
}

// Begin implements Actor.
func (p *publisher) Begin(l *Life) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	var err error
	p.client, err = reprise.Dial(ctx, url, &reprise.Config{Name: publisherName, Dial: l.Network.Dialer(publisherName), Logger: l.Logger(publisherName)})
	if err != nil {
		l.Broken(promiseWorks, "publisher: %v", err)
		return
	}
	for _, w := range l.Script.Shape.Works { // so that the publisher can start before the workers
		c := findDesign(w.Design).Build(w).config
		route := c.Strategy.WithDefaults().Route.Topology(c.Queue)
		route.Queues = slices.DeleteFunc(slices.Clone(route.Queues), func(q topology.Queue) bool {
			return slices.ContainsFunc(c.Topology.Queues, func(own topology.Queue) bool { return own.Name == q.Name })
		})
		// Each declaration waits for an fsync, so a large topology on a slow disk takes longer than the timeout of Declare. Each
		// attempt continues where the previous one ended.
		for range 5 {
			if err = errors.Join(p.client.Declare(ctx, c.Topology), p.client.Declare(ctx, route)); err == nil {
				break
			}
		}
		if err != nil {
			l.Broken(promiseWorks, "publisher: %v", err)
		}
	}
}

// Heal implements Actor.
func (p *publisher) Heal(*Life) {}

// Idle implements Actor.
func (p *publisher) Idle(l *Life) string {
	l.Book.mu.Lock()
	defer l.Book.mu.Unlock()
	if n := p.acts.Load(); n > 0 {
		return fmt.Sprintf("%d acts are publishing", n)
	}
	if l.Book.pending > 0 {
		return fmt.Sprintf("%d messages are being published", l.Book.pending)
	}
	return ""
}

// End implements Actor.
func (p *publisher) End(l *Life) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := p.client.Close(ctx); err != nil {
		l.Broken(promiseClosed, "publisher: Close: %v", err)
	}
}

func (m *Message) publishing(b built) *reprise.Message {
	return &reprise.Message{Exchange: b.exchange, RoutingKey: b.routingKey(m), MessageID: m.MessageID, Headers: m.Headers, Body: m.Body}
}

// act publishes in a goroutine. The life is not quiet before publish returns.
func (p *publisher) act(l *Life, publish func()) {
	p.acts.Add(1)
	l.Go(func() {
		defer p.acts.Add(-1)
		publish()
	})
}

// publish performs the steps of the publishing acts.
func (p *publisher) publish(l *Life, s Step) {
	random := s.Random()
	w := l.work(s.On)
	b := findDesign(w.Design).Build(w)
	add := func(i int) *Message { return l.Book.Add(fmt.Sprintf("%x-%d", s.Seed, i), w.Name, random.IntN(300)) }
	switch s.Act {
	case "publish", "publish-burst":
		pause := s.For / time.Duration(s.N)
		for i := range s.N {
			m := add(i)
			l.Go(func() { p.send(l, m, b) })
			time.Sleep(time.Duration(random.Int64N(int64(2*pause + 1))))
		}
	case "publish-batch": // Step.For has no effect
		var all []*Message
		var batch []*reprise.Message
		var sendings []*Sending
		for i := range s.N {
			m := add(i)
			all, batch, sendings = append(all, m), append(batch, m.publishing(b)), append(sendings, l.Book.Sending(m))
		}
		errs := make([]error, s.N)
		err := p.client.PublishBatch(context.Background(), batch)
		if failed, ok := errors.AsType[*reprise.BatchError](err); ok {
			for _, f := range failed.Failed {
				errs[f.Index] = f.Err
			}
		} else if err != nil {
			for i := range errs {
				errs[i] = err
			}
		}
		for i, m := range all {
			l.Book.Sent(m, sendings[i], errs[i])
		}
	case "publish-in":
		for i := range s.N {
			m := add(i)
			d := between(random, time.Second, s.For)
			l.Go(func() {
				sending := l.Book.Sending(m)
				l.Book.mu.Lock()
				m.Due = time.Now().Add(d)
				l.Book.mu.Unlock()
				l.Book.Sent(m, sending, p.client.PublishIn(context.Background(), d, m.publishing(b)))
			})
		}
	}
}

// send publishes a message. It repeats half of the failed publishes once.
func (p *publisher) send(l *Life, m *Message, b built) {
	for range 2 {
		s := l.Book.Sending(m)
		err := p.client.Publish(context.Background(), m.publishing(b))
		l.Book.Sent(m, s, err)
		if err == nil || source(m.ID, -2).IntN(2) == 0 {
			return
		}
	}
}

// work returns the work with this name.
func (l *Life) work(name string) Work {
	for _, w := range l.Script.Shape.Works {
		if w.Name == name {
			return w
		}
	}
	return Work{}
}
