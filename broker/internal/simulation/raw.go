package simulation

import (
	"fmt"
	"math/rand/v2"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
)

// rawName is the owner of the connections of publishers that do not use Reprise.
const rawName = "raw"

func init() {
	RegisterOwners(func(Shape) []string { return []string{rawName} })
	RegisterAct(Act{
		Name: "publish-raw", Weight: 6,
		Draw: func(random *rand.Rand, shape Shape) []Step {
			return []Step{{On: oneOf(random, shape.Names()...), N: 1 + random.IntN(40), For: between(random, time.Second, time.Hour)}}
		},
		Do: func(l *Life, s Step) {
			l.Count("publish-raw")
			l.publisher().act(l, func() { publishRaw(l, s) })
		},
	})
}

// publishRaw publishes messages with an AMQP client and waits for confirms. Half of the messages have no message ID.
func publishRaw(l *Life, s Step) {
	random := s.Random()
	w := l.work(s.On)
	b := findDesign(w.Design).Build(w)
	conn, err := l.Open(rawName)
	if err != nil {
		return
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil || ch.Confirm(false) != nil {
		return
	}
	for i := range s.N {
		m := l.Book.Add(fmt.Sprintf("%x-%d", s.Seed, i), w.Name, random.IntN(300))
		if random.IntN(2) == 0 {
			l.Book.anonymous(m)
		}
		pause := time.Duration(random.Int64N(int64(2 * s.For / time.Duration(s.N))))
		sending := l.Book.Sending(m)
		c, err := ch.PublishWithDeferredConfirm(b.exchange, b.routingKey(m), false, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, MessageId: m.MessageID, Headers: m.Headers, Body: m.Body,
		})
		if err != nil {
			l.Book.Sent(m, sending, fmt.Errorf("%w: %w", reprise.ErrUnconfirmed, err)) // a part of the message may have arrived
			return
		}
		<-c.Done()
		switch {
		case c.Acked():
			l.Book.Sent(m, sending, nil)
		case conn.IsClosed():
			l.Book.Sent(m, sending, reprise.ErrUnconfirmed)
			return
		default:
			l.Book.Sent(m, sending, reprise.ErrNacked)
		}
		time.Sleep(pause)
	}
}

// anonymous removes the ID of a message before its first publish.
func (b *Book) anonymous(m *Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m.MessageID = ""
	b.note(m, "message without an ID")
}
