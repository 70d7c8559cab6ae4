package simulation

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
)

// rejecterName is the owner of the connections of programs that reject bursts.
const rejecterName = "rejecter"

// rejecter is an Actor. It runs programs that fetch many messages from a queue with a dead-letter exchange and then
// reject them. In some bursts, the broker stops after the first reject.
type rejecter struct{ running atomic.Int32 }

func init() {
	RegisterActor(func(*Life) []Actor { return []Actor{new(rejecter)} })
	RegisterAct(Act{
		Name: "reject-burst", Weight: 2,
		Draw: func(random *rand.Rand, shape Shape) []Step {
			for _, i := range random.Perm(len(shape.Works)) {
				if w := shape.Works[i]; w.Design == "deadletter" || w.Design == "workretry" {
					// N is the number of messages. For is the time between the first reject and the stop of the broker; 1 ns
					// disables the stop.
					s := Step{On: w.Name, N: 100 + random.IntN(1400), For: 1}
					if shape.Disk && random.IntN(4) > 0 {
						s.For = upTo(random, 25*time.Millisecond)
					}
					return []Step{s}
				}
			}
			return nil
		},
		Do: func(l *Life, s Step) {
			for _, a := range l.actors {
				if r, ok := a.(*rejecter); ok && l.Server.Broker() != nil {
					r.running.Add(1)
					l.Go(func() {
						defer r.running.Add(-1)
						r.reject(l, s)
					})
				}
			}
		},
	})
}

// Begin implements Actor.
func (r *rejecter) Begin(*Life) {}

// Heal implements Actor.
func (r *rejecter) Heal(*Life) {}

// End implements Actor.
func (r *rejecter) End(*Life) {}

// Idle implements Actor.
func (r *rejecter) Idle(*Life) string {
	if r.running.Load() > 0 {
		return "a rejecter is rejecting a burst"
	}
	return ""
}

func (r *rejecter) reject(l *Life, s Step) {
	w := l.work(s.On)
	b := findDesign(w.Design).Build(w)
	attempt := foreignWorkRetry(w, b).attempt
	conn, err := l.Open(rejecterName)
	if err != nil {
		return
	}
	d := l.Disturb(rejecterName, "stop") // the broker requeues the unacked messages when the connection is closed
	defer d.End()
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return
	}
	deliveries, err := ch.Consume(b.config.Queue, "", false, false, false, false, nil)
	if err != nil || ch.Confirm(false) != nil {
		return
	}
	l.publisher().act(l, func() {
		for i := range s.N {
			m := l.Book.Add(fmt.Sprintf("%x-%d", s.Seed, i), w.Name, 0)
			l.Go(func() { l.publisher().send(l, m, b) })
		}
	})
	type had struct {
		d amqp.Delivery
		m *Message
		r *Run
	}
	var all []had
	for wait := time.After(5 * time.Second); len(all) < s.N; {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return
			}
			if m, run := l.Book.delivered(rejecterName, w.Name, attempt(d), d); m != nil {
				all = append(all, had{d, m, run})
			}
			continue
		case <-wait:
		}
		break
	}
	for i, h := range all {
		if i == 0 && s.For > 1 {
			time.AfterFunc(s.For, func() { l.Server.Stop(5*time.Second, time.Second) })
		}
		l.Book.end(h.m, h.r, attemptThatFails, false)
		if h.d.Reject(false) != nil {
			return
		}
		l.Book.settled(h.m, h.r, reprise.EventRetried)
	}
	if len(all) > 0 {
		l.Count("reject-burst")
	}
	time.Sleep(time.Second) // when the connection is closed, the broker requeues messages that arrive in this second
}

var attemptThatFails = attempt{manner: fails}
