// Command watermill is the peer that uses Watermill with RabbitMQ.
package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/components/requeuer"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/reprisemq/reprise/bench/peers/contract"
)

func main() { contract.Main(contract.Peer{Publish: publish, Work: work, Replay: replay}) }

var log = watermill.NewStdLogger(false, false)

// open returns a publisher and a subscriber of durable queues, and declares the work queue and the poison queue.
func open(c contract.Config) (*amqp.Publisher, *amqp.Subscriber, error) {
	config := amqp.NewDurableQueueConfig(c.URL)
	config.Publish.ConfirmDelivery = true
	pub, err := amqp.NewPublisher(config, log)
	if err != nil {
		return nil, nil, err
	}
	sub, err := amqp.NewSubscriber(config, log)
	if err != nil {
		return nil, nil, err
	}
	for _, queue := range []string{c.Queue, poison(c)} {
		if err := sub.SubscribeInitialize(queue); err != nil {
			return nil, nil, err
		}
	}
	return pub, sub, nil
}

func poison(c contract.Config) string { return c.Queue + ".poison" }

// publishers is the number of goroutines that publish, because Publish waits for the confirm of each message.
const publishers = 32

func publish(_ context.Context, c contract.Config) (func([][]byte) error, func() error, error) {
	pub, _, err := open(c)
	if err != nil {
		return nil, nil, err
	}
	return func(payloads [][]byte) error {
		return contract.Parallel(payloads, publishers, func(payload []byte) error {
			return pub.Publish(c.Queue, message.NewMessage(watermill.NewUUID(), payload))
		})
	}, pub.Close, nil
}

// attempts is the metadata that counts the attempts. The middleware Retry passes the same message to each of them.
const attempts = "attempts"

// work has a handler for each message that is processed at the same time, because a subscription delivers one at a time.
func work(ctx context.Context, c contract.Config, handle contract.Handler) error {
	pub, sub, err := open(c)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, log)
	if err != nil {
		return err
	}
	poisoned, err := middleware.PoisonQueue(pub, poison(c))
	if err != nil {
		return err
	}
	retry := middleware.Retry{MaxRetries: c.Retries, InitialInterval: c.Delay, MaxInterval: c.Delay, Multiplier: 1}
	router.AddMiddleware(poisoned, retry.Middleware)
	for i := range c.Concurrency {
		router.AddConsumerHandler(fmt.Sprint("peer-", i), c.Queue, sub, func(m *message.Message) error {
			n, _ := strconv.Atoi(m.Metadata.Get(attempts))
			m.Metadata.Set(attempts, strconv.Itoa(n+1))
			return handle(m.Payload, n+1)
		})
	}
	return router.Run(ctx)
}

// replay moves the poisoned messages to the work queue until none has arrived for a second. A requeuer never ends.
func replay(ctx context.Context, c contract.Config) error {
	pub, sub, err := open(c)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	idle := time.AfterFunc(10*time.Second, stop)
	r, err := requeuer.NewRequeuer(requeuer.Config{
		Subscriber: sub, SubscribeTopic: poison(c), Publisher: pub,
		GeneratePublishTopic: func(p requeuer.GeneratePublishTopicParams) (string, error) {
			idle.Reset(time.Second)
			return p.Message.Metadata.Get(middleware.PoisonedTopicKey), nil
		},
	}, log)
	if err != nil {
		return err
	}
	return r.Run(ctx)
}
