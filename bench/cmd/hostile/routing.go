package main

import (
	"context"
	"fmt"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// message returns the frames of an empty message with headers.
func message(publish *amqpwire.BasicPublish, headers amqpwire.Table) []byte {
	p := amqpwire.Properties{Flags: amqpwire.PropHeaders, Headers: headers}
	encoded, _ := p.Append(nil) // cannot fail: Append supports the types of all values
	b, _ := amqpwire.AppendMethodFrame(nil, 1, publish)
	return amqpwire.AppendHeaderFrame(b, 1, 60, 0, encoded)
}

// repeated returns 25,000 headers that share 26 names and fill about three quarters of a frame.
func repeated() (t amqpwire.Table) {
	for i := range 25_000 {
		t = append(t, amqpwire.Field{Name: string(rune('a' + i%26)), Value: true})
	}
	return t
}

// many returns 13,000 headers with different names that begin with letter.
func many(letter rune) (t amqpwire.Table) {
	for i := range 13_000 {
		t = append(t, amqpwire.Field{Name: fmt.Sprintf("%c%x", letter, i), Value: true})
	}
	return t
}

// keys returns a CC header with 10,000 routing keys.
func keys() amqpwire.Table {
	var all amqpwire.Array
	for i := range 10_000 {
		all = append(all, fmt.Sprintf("%x", i))
	}
	return amqpwire.Table{{Name: "CC", Value: all}}
}

// bind declares the given number of queues, each with a maximum length of one message, and creates the given binding
// for each.
func (t *target) bind(ctx context.Context, queues int, bind amqpwire.QueueBind) error {
	c, err := t.open(ctx)
	if err != nil {
		return err
	}
	for i := range queues {
		bind.Queue = fmt.Sprint("bound", i)
		arguments := amqpwire.Table{{Name: "x-max-length", Value: int32(1)}}
		if _, err := c.call(1, &amqpwire.QueueDeclare{Queue: bind.Queue, Arguments: arguments}); err != nil {
			return err
		}
		if _, err := c.call(1, &bind); err != nil {
			return err
		}
	}
	return nil
}

func fannedOut(ctx context.Context, t *target) error {
	return t.bind(ctx, 10_000, amqpwire.QueueBind{Exchange: "amq.fanout"})
}

func topics(ctx context.Context, t *target) error {
	return t.bind(ctx, 1000, amqpwire.QueueBind{Exchange: "amq.topic", RoutingKey: "#"})
}

func headed(ctx context.Context, t *target) error {
	wanted := append(many('b'), amqpwire.Field{Name: "x-match", Value: "any"})
	return t.bind(ctx, 1, amqpwire.QueueBind{Exchange: "amq.headers", Arguments: wanted})
}

// routed returns an attack that repeatedly publishes an empty message with the given headers.
func routed(publish *amqpwire.BasicPublish, headers amqpwire.Table) func(context.Context, *target) string {
	return func(ctx context.Context, t *target) string {
		c, err := t.open(ctx)
		if err != nil {
			return t.outcome(ctx, c, err)
		}
		one := message(publish, headers)
		return t.reading(ctx, c, func(int) error { return c.write(one) })
	}
}
