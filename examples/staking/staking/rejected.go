package staking

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
)

// RejectedQueue is the work queue of Demo.Rejected. The original programs do not use it.
const RejectedQueue = "rejected_example_queue"

// Rejected demonstrates the effect of a message that a program rejects instead of requeueing, and the remedy. RabbitMQ
// dead-letters the rejected message to the delay queue without an expiration. There, the message blocks all messages
// that are requeued after it. At the end, Rejected deletes its queues.
func (d Demo) Rejected(ctx context.Context) (err error) {
	d.Design.Queues = []string{RejectedQueue}
	back := make(chan struct{})
	client, err := reprise.Dial(ctx, d.URL, &d.Client)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close(context.WithoutCancel(ctx))) }()
	conn, err := amqp.DialConfig(d.URL, amqp.Config{Dial: d.dialer(ctx)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := client.Declare(ctx, d.Design.Topology()); err != nil {
		return err
	}
	defer func() {
		for _, q := range d.Design.Topology().Queues {
			_, deleteErr := ch.QueueDelete(q.Name, false, false, false)
			err = errors.Join(err, deleteErr)
		}
	}()

	say := func(format string, args ...any) { fmt.Fprintf(d.Out, format+"\n", args...) }
	publish := func(id string) error {
		return client.Publish(ctx, &reprise.Message{RoutingKey: RejectedQueue, MessageID: id, Body: []byte(id)})
	}
	if err := publish("rejected"); err != nil {
		return err
	}
	if err := errors.Join(reject(ctx, ch), awaitDelayed(ctx, client, 1)); err != nil {
		return err
	}
	say("A program rejects a message of %s. The broker dead-letters it into\n%[1]s_delay, without an expiration.", RejectedQueue)

	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue: RejectedQueue, Strategy: d.Design.Strategy(),
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if m.Attempt == 1 {
				return errors.New("not now")
			}
			close(back)
			return nil
		}),
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(context.WithoutCancel(ctx)) }()
	defer func() { err = errors.Join(err, worker.Shutdown(context.WithoutCancel(ctx)), <-ended) }()
	if err := errors.Join(publish("requeued"), awaitDelayed(ctx, client, 2)); err != nil {
		return err
	}
	if returned, err := within(ctx, 4*d.Design.RetryDelay, back); err != nil {
		return err
	} else if returned {
		return errors.New("staking: rejected message does not block the delay queue")
	}
	say("A worker requeues another message for %s. It does not return within %s.\n%s_delay has 2 messages, the rejected message first.",
		d.Design.RetryDelay, 4*d.Design.RetryDelay, RejectedQueue)

	if err := move(ctx, ch, client); err != nil {
		return err
	}
	say("This command moves the first message to %s_failed:\n  reprise redrive --from %[1]s_delay --to %[1]s_failed --limit 1 --yes", RejectedQueue)
	if returned, err := within(ctx, timeout, back); err != nil {
		return err
	} else if !returned {
		return fmt.Errorf("staking: timed out after %s waiting for the requeued message", timeout)
	}
	say("The requeued message is done.\n\nbalance: 2 sent = 1 done + 1 moved")
	return nil
}

// reject receives a message from RejectedQueue and rejects the message.
func reject(ctx context.Context, ch *amqp.Channel) error {
	deliveries, err := ch.ConsumeWithContext(ctx, RejectedQueue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	m, ok := <-deliveries
	if !ok {
		return errors.Join(context.Cause(ctx), errors.New("staking: connection is lost"))
	}
	return errors.Join(m.Reject(false), ch.Cancel(m.ConsumerTag, false))
}

// move moves the first message of the delay queue to the failed queue. It acknowledges the message after the broker has
// confirmed the copy.
func move(ctx context.Context, ch *amqp.Channel, client *reprise.Client) error {
	m, found, err := ch.Get(RejectedQueue+"_delay", false)
	if err != nil || !found {
		return errors.Join(err, errors.New("staking: cannot receive the rejected message"))
	}
	if err := client.Publish(ctx, &reprise.Message{RoutingKey: RejectedQueue + "_failed", MessageID: m.MessageId, Body: m.Body}); err != nil {
		return err
	}
	return m.Ack(false)
}

// awaitDelayed waits until the delay queue contains at least n messages. The demonstration needs this, because the
// rejected message must arrive first, and both the broker and the worker move messages asynchronously.
func awaitDelayed(ctx context.Context, client *reprise.Client, n int) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		depth, err := client.Depth(ctx, RejectedQueue+"_delay")
		if err != nil || depth >= n {
			return err
		}
		if _, err := within(ctx, 10*time.Millisecond, nil); err != nil {
			return err
		}
	}
}

// within reports whether done is closed within d.
func within(ctx context.Context, d time.Duration, done <-chan struct{}) (bool, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// dialer converts d.Client.Dial into the form that package amqp091 requires. It returns nil if Dial is not set.
func (d Demo) dialer(ctx context.Context) func(network, addr string) (net.Conn, error) {
	if d.Client.Dial == nil {
		return nil
	}
	return func(network, addr string) (net.Conn, error) { return d.Client.Dial(ctx, network, addr) }
}
