package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/reprisemq/reprise/internal/amqpwire"
)

// attack is a scenario with a hostile client. Its function run carries out the attack and describes the outcome.
type attack struct {
	name    string
	flags   []string      // additional flags for the broker
	lasts   time.Duration // minimum time limit; -duration applies if it is longer
	blocks  bool          // the broker blocks all publishers during the attack
	prepare func(context.Context, *target) error
	run     func(context.Context, *target) string
}

var attacks = []attack{
	{name: "3,183 basic.consume with tables of 120 KB", run: consumeTables},
	{name: "queues with tables of 120 KB", run: flood(func(i int) amqpwire.Method {
		return &amqpwire.QueueDeclare{Queue: fmt.Sprint("q", i), NoWait: true, Arguments: large()}
	})},
	{name: "as many queues as possible", run: flood(func(i int) amqpwire.Method {
		return &amqpwire.QueueDeclare{Queue: fmt.Sprint("q", i), NoWait: true}
	})},
	{name: "exchanges with tables of 120 KB", run: flood(func(i int) amqpwire.Method {
		return &amqpwire.ExchangeDeclare{Exchange: fmt.Sprint("x", i), Type: "fanout", NoWait: true, Arguments: large()}
	})},
	{name: "bindings with tables of 120 KB", prepare: declare("bound"), run: flood(func(i int) amqpwire.Method {
		return &amqpwire.QueueBind{Queue: "bound", Exchange: "amq.headers", RoutingKey: fmt.Sprint(i), NoWait: true, Arguments: large()}
	})},
	{name: "tables nested 10,000 deep", run: nested},
	{name: "2,047 bodies of 16 MiB, never finished", lasts: 75 * time.Second, run: unfinished},
	{name: "a transaction, never committed", run: uncommitted},
	{name: "a consumer that reads and acks nothing, 100 B", prepare: declare("unread"), run: unread(100, 300_000)},
	{name: "a consumer that reads and acks nothing, 1 MiB", prepare: declare("unread"), run: unread(1<<20, 300)},
	{name: "basic.get without reading", prepare: prefill("got", 1000, 100_000), run: gets},
	{name: "basic.recover of 100,000 deliveries, again and again", prepare: prefill("recovered", 100_000, 10), run: recovers},
	{name: "queues of 500,000 messages, deleted", prepare: prefill("deleted", 500_000, 10), run: deletes},
	{name: "publishing until the memory alarm", blocks: true, prepare: prefill("backlog", 20_000, 100), run: alarm},
	{name: "empty messages until the memory alarm", blocks: true, prepare: declare("heap"), run: heap(publish(1, "heap", nil))},
	{name: "messages with 25,000 headers, until the memory alarm", lasts: 40 * time.Second, blocks: true, prepare: declare("heap"), run: heap(message(&amqpwire.BasicPublish{RoutingKey: "heap"}, repeated()))},
	{name: "a fanout to 10,000 queues", prepare: fannedOut, run: routed(&amqpwire.BasicPublish{Exchange: "amq.fanout"}, nil)},
	{name: "13,000 headers against a binding of 13,000", prepare: headed, run: routed(&amqpwire.BasicPublish{Exchange: "amq.headers"}, many('a'))},
	{name: "10,000 keys in CC to 1,000 queues", prepare: topics, run: routed(&amqpwire.BasicPublish{Exchange: "amq.topic"}, keys())},
	{name: "10,000 idle connections", run: idle(nil)},
	{name: "10,000 idle connections with 1,900 capabilities", run: idle(repeated()[:1900])},
	{name: "5,000 handshakes, never finished", lasts: 15 * time.Second, run: silent},
	{name: "connections opened and closed", run: churn},
	{name: "channels opened and closed", run: channelChurn},
	{name: "wrong passwords", run: guess},
	{name: "six GET /api/queues of 100,000 queues", lasts: time.Minute, prepare: manyQueues, run: list("/api/queues")},
	{name: "six GET /metrics/per-object of 100,000 queues", prepare: manyQueues, run: list("/metrics/per-object")},
	{name: "a list that is not read", prepare: manyQueues, run: unreadList},
	{name: "definitions of 19 MB, six at a time", lasts: time.Minute, run: definitions},
	{name: "definitions of 1 GB", run: endless},
}

// large returns a table of 120 KB.
func large() amqpwire.Table {
	return amqpwire.Table{{Name: "padding", Value: strings.Repeat("x", 120_000)}}
}

func declare(name string) func(context.Context, *target) error {
	return func(ctx context.Context, t *target) error {
		c, err := t.open(ctx)
		if err == nil {
			_, err = c.call(1, &amqpwire.QueueDeclare{Queue: name, Durable: true})
		}
		return err
	}
}

// prefill publishes n messages of the given size to a queue.
func prefill(name string, n, size int) func(context.Context, *target) error {
	return func(ctx context.Context, t *target) error {
		if err := declare(name)(ctx, t); err != nil {
			return err
		}
		c, err := t.open(ctx)
		if err != nil {
			return err
		}
		if _, err := c.call(1, &amqpwire.ConfirmSelect{}); err != nil {
			return err
		}
		message := publish(1, name, make([]byte, size))
		for range n {
			if err := c.write(message); err != nil {
				return err
			}
		}
		for {
			m, err := c.receive()
			if err != nil {
				return err
			}
			if ack, ok := m.(*amqpwire.BasicAck); ok && ack.DeliveryTag == uint64(n) {
				return nil
			}
		}
	}
}

// repeat calls the function do until it fails or the attack ends, and describes the outcome.
func (t *target) repeat(ctx context.Context, c *client, do func(i int) error) string {
	for i := 0; ctx.Err() == nil && !t.spent(); i++ {
		if err := do(i); err != nil {
			return fmt.Sprintf("%s, in its action %d", t.outcome(ctx, c, err), i+1)
		}
	}
	return t.after("not stopped")
}

func consumeTables(ctx context.Context, t *target) string {
	c, err := t.open(ctx)
	if err != nil {
		return t.outcome(ctx, c, err)
	}
	if _, err := c.call(1, &amqpwire.QueueDeclare{Queue: "consumed"}); err != nil {
		return t.outcome(ctx, c, err)
	}
	for i := range 3183 {
		if err := c.send(1, &amqpwire.BasicConsume{Queue: "consumed", ConsumerTag: fmt.Sprint(i), NoWait: true, Arguments: large()}); err != nil {
			return fmt.Sprintf("%s, in its consumer %d", t.outcome(ctx, c, err), i+1)
		}
	}
	return t.answered(ctx, c)
}

// answered sends a request and waits for the reply, which shows that the broker has processed all earlier requests.
func (t *target) answered(ctx context.Context, c *client) string {
	_, err := c.call(1, &amqpwire.BasicQos{PrefetchCount: 1})
	if err == nil {
		return t.after("not stopped: the broker accepted everything")
	}
	return t.outcome(ctx, c, err)
}

// flood returns an attack that sends methods without waiting for replies.
func flood(method func(i int) amqpwire.Method) func(context.Context, *target) string {
	return func(ctx context.Context, t *target) string {
		c, err := t.open(ctx)
		if err != nil {
			return t.outcome(ctx, c, err)
		}
		return t.reading(ctx, c, func(i int) error { return c.send(1, method(i)) })
	}
}

// reading is like repeat, but also reads and discards the data from the broker.
func (t *target) reading(ctx context.Context, c *client, do func(i int) error) string {
	ended := make(chan error, 1)
	go func() { ended <- c.end() }()
	i := 0
	for ; ctx.Err() == nil && !t.spent(); i++ {
		if err := do(i); err != nil {
			break
		}
		select {
		case err := <-ended:
			return fmt.Sprintf("%s, in its action %d", t.outcome(ctx, nil, err), i+1)
		default:
		}
	}
	sent := t.after("not stopped, in %d actions", i)
	select {
	case err := <-ended:
		return fmt.Sprintf("%s, in its action %d", t.outcome(ctx, nil, err), i+1)
	case <-time.After(2 * time.Second):
		return sent
	}
}

// nested declares queues whose arguments are deeply nested tables. It opens a new connection for each attempt, because
// the broker closes the connection in response.
func nested(ctx context.Context, t *target) string {
	table := []byte{0, 0, 0, 0}
	for range 10_000 { // each table is the field "a" of the next table
		field := append([]byte{1, 'a', 'F'}, table...)
		size := len(field)
		table = append([]byte{byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}, field...)
	}
	payload := append([]byte{0, 50, 0, 10, 0, 0, 1, 'q', 0}, table...)
	frame := append([]byte{1, 0, 1, byte(len(payload) >> 24), byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload))}, payload...)
	frame = append(frame, amqpwire.FrameEnd)
	outcome := ""
	for n := 1; ctx.Err() == nil; n++ {
		c, err := t.open(ctx)
		if over(ctx, err) {
			break
		}
		if err != nil {
			return t.outcome(ctx, c, err)
		}
		if err = c.write(frame); err == nil {
			err = c.end()
		}
		_ = c.conn.Close()
		if !over(ctx, err) {
			outcome = fmt.Sprintf("each of %d times: %.60s…", n, err)
		}
	}
	return outcome
}

// unfinished begins a message on each channel, sends body frames on the channels in turn, and never completes a body.
func unfinished(ctx context.Context, t *target) string {
	c, err := t.connect(ctx)
	if err != nil {
		return t.outcome(ctx, c, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.end() }()
	const channels, body = 2047, 16 << 20
	for i := uint16(1); i <= channels; i++ {
		b, _ := amqpwire.AppendMethodFrame(nil, i, &amqpwire.ChannelOpen{})
		b, _ = amqpwire.AppendMethodFrame(b, i, &amqpwire.BasicPublish{RoutingKey: "nowhere"})
		if err := c.write(amqpwire.AppendHeaderFrame(b, i, 60, body, []byte{0, 0})); err != nil {
			return t.outcome(ctx, nil, <-ended)
		}
	}
	part := make([]byte, frameMax-amqpwire.FrameOverhead)
	for sent := 0; sent+len(part) < body && !t.spent(); sent += len(part) {
		for i := uint16(1); i <= channels && !t.spent(); i++ {
			if err := c.write(amqpwire.AppendBodyFrames(nil, i, part, frameMax)); err != nil {
				return t.outcome(ctx, nil, <-ended)
			}
		}
	}
	select {
	case err := <-ended:
		return t.outcome(ctx, nil, err)
	case <-ctx.Done():
		return t.after("not stopped")
	}
}

func uncommitted(ctx context.Context, t *target) string {
	c, err := t.open(ctx)
	if err == nil {
		_, err = c.call(1, &amqpwire.TxSelect{})
	}
	if err == nil {
		_, err = c.call(1, &amqpwire.QueueDeclare{Queue: "tx"})
	}
	if err != nil {
		return t.outcome(ctx, c, err)
	}
	message := publish(1, "tx", make([]byte, 100_000))
	return t.reading(ctx, c, func(int) error { return c.write(message) })
}

// unread returns an attack that consumes without a prefetch limit and never reads from the connection. Another
// connection publishes the messages.
func unread(size, n int) func(context.Context, *target) string {
	return func(ctx context.Context, t *target) string {
		consumer, err := t.open(ctx)
		if err == nil {
			_, err = consumer.call(1, &amqpwire.BasicConsume{Queue: "unread", ConsumerTag: "unread"})
		}
		if err != nil {
			return t.outcome(ctx, consumer, err)
		}
		if err := prefill("unread", n, size)(ctx, t); err != nil && ctx.Err() == nil {
			return t.after("the publisher: %v", err)
		}
		<-ctx.Done()
		return fmt.Sprintf("not stopped; %d messages of %d B wait, or are unacked", n, size)
	}
}

func gets(ctx context.Context, t *target) string {
	c, err := t.open(ctx)
	if err != nil {
		return t.outcome(ctx, c, err)
	}
	get, _ := amqpwire.AppendMethodFrame(nil, 1, &amqpwire.BasicGet{Queue: "got"})
	many := []byte(strings.Repeat(string(get), 1000))
	return t.repeat(ctx, c, func(int) error { return c.write(many) })
}

// recovers consumes all messages of a queue without acknowledging them, and repeatedly requeues them with basic.recover.
func recovers(ctx context.Context, t *target) string {
	c, err := t.open(ctx)
	if err == nil {
		_, err = c.call(1, &amqpwire.BasicConsume{Queue: "recovered", ConsumerTag: "c"})
	}
	if err != nil {
		return t.outcome(ctx, c, err)
	}
	return t.reading(ctx, c, func(int) error { return c.send(1, &amqpwire.BasicRecover{Requeue: true}) })
}

// deletes repeatedly deletes a queue and fills it again.
func deletes(ctx context.Context, t *target) string {
	for n := 0; ; n++ {
		c, err := t.open(ctx)
		if err == nil {
			_, err = c.call(1, &amqpwire.QueueDelete{Queue: "deleted"})
		}
		if err == nil {
			err = prefill("deleted", 500_000, 10)(ctx, t)
		}
		if over(ctx, err) {
			return t.after("not stopped: %d queues", n)
		}
		if err != nil {
			return t.outcome(ctx, c, err)
		}
	}
}

// alarm publishes to a queue without consumers until the broker stops reading, while a second client fetches messages
// from another queue.
func alarm(ctx context.Context, t *target) string {
	if err := declare("heap")(ctx, t); err != nil {
		return t.after("%v", err)
	}
	var working sync.WaitGroup
	defer working.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	worked := new(counter)
	working.Go(func() { t.work(ctx, worked) })

	c, err := t.open(ctx)
	if err != nil {
		return t.outcome(ctx, c, err)
	}
	message := publish(1, "heap", make([]byte, 100_000))
	for ctx.Err() == nil && !t.spent() {
		_ = c.conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
		if err := c.write(message); err == nil {
			continue
		}
		blocked, before := t.after("broker stopped reading"), worked.Load()
		<-ctx.Done()
		return fmt.Sprintf("%s; the consumer of another queue then received %d messages", blocked, worked.Load()-before)
	}
	return t.after("not stopped")
}

// heap returns an attack that repeatedly publishes a message to a queue without consumers.
func heap(message []byte) func(context.Context, *target) string {
	return func(ctx context.Context, t *target) string {
		c, err := t.open(ctx)
		if err != nil {
			return t.outcome(ctx, c, err)
		}
		many := bytes.Repeat(message, max(1, 1<<16/len(message)))
		for n := 0; ctx.Err() == nil && !t.spent(); n += len(many) / len(message) {
			_ = c.conn.SetWriteDeadline(time.Now().Add(2 * time.Second))
			if err := c.write(many); err != nil && ctx.Err() == nil {
				return t.after("broker stopped reading, after about %d messages", n)
			}
		}
		return t.after("not stopped")
	}
}

// work fetches up to a hundred messages per second with basic.get, and counts them.
func (t *target) work(ctx context.Context, worked *counter) {
	c, err := t.open(ctx)
	if err != nil {
		return
	}
	for ctx.Err() == nil {
		got, err := c.call(1, &amqpwire.BasicGet{Queue: "backlog", NoAck: true})
		if err != nil {
			return
		}
		if _, ok := got.(*amqpwire.BasicGetOk); ok {
			worked.Add(1)
		}
		sleep(ctx, 10*time.Millisecond)
	}
}
