// Command loop is a consumer that uses amqp091-go without a library above it. It publishes a copy of a failed message to a
// wait queue with a TTL, waits for the confirm, and acks the original.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/bench/peers/contract"
)

func main() { contract.Main(contract.Peer{Publish: publish, Work: work, Replay: replay}) }

var errClosed = errors.New("connection closed")

// open connects, and declares the work queue, its wait queue and its failed queue.
func open(c contract.Config) (*amqp.Connection, *amqp.Channel, error) {
	conn, err := amqp.Dial(c.URL)
	if err != nil {
		return nil, nil, err
	}
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	quorum := amqp.Table{"x-queue-type": "quorum"}
	wait := amqp.Table{
		"x-queue-type": "quorum", "x-message-ttl": c.Delay.Milliseconds(), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": c.Queue,
		"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
	}
	for name, args := range map[string]amqp.Table{c.Queue: quorum, waitQueue(c): wait, c.Queue + ".failed": quorum} {
		if err == nil {
			_, err = ch.QueueDeclare(name, true, false, false, false, args)
		}
	}
	return conn, ch, err
}

// send publishes a persistent message and returns a function that waits for the confirm.
func send(ctx context.Context, ch *amqp.Channel, queue string, body []byte, attempts int32) (func() error, error) {
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false, amqp.Publishing{
		DeliveryMode: amqp.Persistent, Headers: amqp.Table{"x-attempts": attempts}, Body: body,
	})
	return func() error {
		if ok, err := confirm.WaitContext(ctx); err != nil || !ok {
			return errors.Join(errClosed, err)
		}
		return nil
	}, err
}

func publish(ctx context.Context, c contract.Config) (func([][]byte) error, func() error, error) {
	conn, ch, err := open(c)
	if err != nil {
		return nil, nil, err
	}
	return func(payloads [][]byte) error {
		waits := make([]func() error, len(payloads))
		for i, payload := range payloads {
			if waits[i], err = send(ctx, ch, c.Queue, payload, 0); err != nil {
				return err
			}
		}
		for _, wait := range waits {
			if err := wait(); err != nil {
				return err
			}
		}
		return nil
	}, conn.Close, nil
}

// work reconnects after each failure.
func work(ctx context.Context, c contract.Config, handle contract.Handler) error {
	for ctx.Err() == nil {
		if err := consume(ctx, c, handle); err != nil {
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(100 * time.Millisecond)
		}
	}
	return nil
}

func consume(ctx context.Context, c contract.Config, handle contract.Handler) error {
	conn, ch, err := open(c)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := ch.Qos(4*c.Concurrency, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(c.Queue, "loop", false, false, false, false, nil)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = ch.Cancel("loop", false) }) // closes deliveries
	defer stop()
	var handlers sync.WaitGroup
	for range c.Concurrency {
		handlers.Go(func() {
			for d := range deliveries {
				attempts, _ := d.Headers["x-attempts"].(int32)
				attempts++
				if handle(d.Body, int(attempts)) != nil {
					to := waitQueue(c)
					if int(attempts) > c.Retries {
						to = c.Queue + ".failed"
					}
					wait, err := send(context.WithoutCancel(ctx), ch, to, d.Body, attempts)
					if err == nil {
						err = wait()
					}
					if err != nil {
						conn.Close() // the broker delivers the message again
						continue
					}
				}
				_ = d.Ack(false)
			}
		})
	}
	handlers.Wait()
	return ctx.Err()
}

// replay moves the parked messages to the work queue.
func replay(ctx context.Context, c contract.Config) error {
	conn, ch, err := open(c)
	if err != nil {
		return err
	}
	defer conn.Close()
	for {
		d, ok, err := ch.Get(c.Queue+".failed", false)
		if err != nil || !ok {
			return err
		}
		wait, err := send(ctx, ch, c.Queue, d.Body, 0)
		if err == nil {
			err = wait()
		}
		if err == nil {
			err = d.Ack(false)
		}
		if err != nil {
			return err
		}
	}
}

// waitQueue returns the name of the wait queue, which depends on the delay.
func waitQueue(c contract.Config) string { return fmt.Sprintf("%s.wait.%s", c.Queue, c.Delay) }
