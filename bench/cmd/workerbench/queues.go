package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// workQueue is the queue from which contenders consume, or to which they publish.
const workQueue = "workerbench"

// hop returns the route on which a Worker sends a copy of a failed message to the wait queue.
func hop(queue string) topology.Hop {
	h, err := topology.Buckets{}.Wait(topology.Delivery{Queue: queue}, delay)
	if err != nil {
		panic(err)
	}
	return h
}

func (j *job) waitQueue() string { return waitQueue }

var (
	waitQueue  = hop(workQueue).RoutingKey
	expiration = strconv.FormatInt(hop(workQueue).TTL.Milliseconds(), 10)
)

// filling determines the messages that a contender consumes.
type filling struct {
	body int                                    // size in bytes; 0 means 65
	seal func() (beforePublish hook, err error) // may be nil
}

type hook func(context.Context, *reprise.Message) error

const kib = 1 << 10

// publish publishes large messages to workQueue.
func (f filling) publish(ctx context.Context, url string, messages int) error {
	config := &reprise.Config{}
	if f.seal != nil {
		before, err := f.seal()
		if err != nil {
			return err
		}
		config.BeforePublish = before
	}
	client, err := reprise.Dial(ctx, url, config)
	if err != nil {
		return err
	}
	const note = `,"note":"%s"}`
	for i := 0; i < messages && err == nil; {
		batch := make([]*reprise.Message, min(100, messages-i))
		for n := range batch {
			m := order(i, workQueue)
			m.Body = m.Body[:len(m.Body)-1]
			m.Body = fmt.Appendf(m.Body, note, strings.Repeat("x", f.body-len(m.Body)-len(note)+2))
			batch[n] = m
			i++
		}
		err = client.PublishBatch(ctx, batch)
	}
	return errors.Join(err, client.Close(ctx))
}

// fill deletes and redeclares the queues of a Worker, and publishes messages to workQueue or to its partitions.
func (b *bench) fill(ctx context.Context, messages, partitions int, f filling) error {
	h, err := dial(b.url)
	if err != nil {
		return err
	}
	defer h.close()
	queues := topology.Buckets{}.Topology(workQueue).Merge(hop(workQueue).Topology)
	if partitions > 0 {
		queues = queues.Merge(reprise.Keyed{Partitions: partitions}.Route().Topology(workQueue))
	}
	for _, q := range queues.Queues {
		if _, err := h.ch.QueueDelete(q.Name, false, false, false); err != nil {
			return err
		}
	}
	client, err := reprise.Dial(ctx, b.url, nil)
	if err != nil {
		return err
	}
	if err = client.Declare(ctx, queues); err == nil && partitions > 0 {
		err = publishKeyed(ctx, client, messages, partitions)
		messages = 0
	}
	if err != nil {
		return errors.Join(err, client.Close(ctx))
	}
	if err := client.Close(ctx); err != nil || messages == 0 {
		return err
	}
	if f.body > 0 {
		return f.publish(ctx, b.url, messages)
	}
	j := &job{url: b.url, queue: workQueue, messages: messages}
	j.meter.begin(messages)
	return j.publishWindow(1000)
}

// publishKeyed publishes messages with 10,000 keys to the partitions of workQueue.
func publishKeyed(ctx context.Context, c *reprise.Client, messages, partitions int) error {
	for first := 0; first < messages; first += 1000 {
		var some []*reprise.Message
		for i := first; i < min(first+1000, messages); i++ {
			key := fmt.Sprint("key ", i%10000)
			m := order(i, reprise.PartitionQueue(workQueue, key, partitions))
			m.Headers[reprise.HeaderKey] = key
			some = append(some, m)
		}
		if err := c.PublishBatch(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// timeout is the maximum time for which verify waits until the broker reports the expected numbers of messages.
const timeout = 20 * time.Second

// verify checks that the queue named where contains all messages, and that the other queues are empty. If where is
// empty, all queues must be empty.
func (b *bench) verify(ctx context.Context, where string, messages, partitions int) error {
	h, err := dial(b.url)
	if err != nil {
		return err
	}
	defer h.close()
	want := map[string]int{workQueue: 0, waitQueue: 0, topology.FailedQueue(workQueue): 0}
	if where != "" {
		want[where] = messages
	}
	for n := range partitions {
		partition := fmt.Sprintf("%s.part.%d-of-%d", workQueue, n, partitions)
		want[partition], want[partition+".held"] = 0, 2 // the marker and the proof of the last owner
	}
	for end := time.Now().Add(timeout); ; {
		err := h.compare(want)
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (h *byHand) compare(want map[string]int) error {
	for name, n := range want {
		var q amqp.Queue
		q, err := h.ch.QueueDeclarePassive(name, true, false, false, false, nil)
		if err != nil {
			return err
		}
		if q.Messages != n {
			return fmt.Errorf("queue %q must have %d messages after the run: got %d", name, n, q.Messages)
		}
	}
	return nil
}
