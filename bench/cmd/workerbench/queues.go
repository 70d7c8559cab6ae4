package main

import (
	"context"
	"fmt"
	"strconv"
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

// fill deletes and redeclares the queues of a Worker, and publishes messages to workQueue.
func (b *bench) fill(ctx context.Context, messages int) error {
	h, err := dial(b.url)
	if err != nil {
		return err
	}
	defer h.close()
	for _, name := range []string{workQueue, waitQueue, topology.FailedQueue(workQueue)} {
		if _, err := h.ch.QueueDelete(name, false, false, false); err != nil {
			return err
		}
	}
	client, err := reprise.Dial(ctx, b.url, nil)
	if err != nil {
		return err
	}
	err = client.Declare(ctx, topology.Buckets{}.Topology(workQueue).Merge(hop(workQueue).Topology))
	if err != nil {
		return err
	}
	if err := client.Close(ctx); err != nil || messages == 0 {
		return err
	}
	j := &job{url: b.url, queue: workQueue, messages: messages}
	j.meter.begin(messages)
	return j.publishWindow(1000)
}

// timeout is the maximum time for which verify waits until the broker reports the expected numbers of messages.
const timeout = 20 * time.Second

// verify checks that the queue named where contains all messages, and that the other queues are empty. If where is
// empty, all queues must be empty.
func (b *bench) verify(ctx context.Context, where string, messages int) error {
	h, err := dial(b.url)
	if err != nil {
		return err
	}
	defer h.close()
	want := map[string]int{workQueue: 0, waitQueue: 0, topology.FailedQueue(workQueue): 0}
	if where != "" {
		want[where] = messages
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
