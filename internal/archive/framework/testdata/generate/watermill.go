// Watermill runs a handler that fails behind the middleware PoisonQueue. Modules: watermill v1.5.1, watermill-amqp/v3 v3.0.2. Copy the
// file into a module of its own, because Reprise does not require them:
//
//	go run watermill.go URL fail      then capture the messages of the queues watermill.poison and watermill-topic.poison
//	go run watermill.go URL handle    prints each message that the handlers receive
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
)

func main() {
	url, do := os.Args[1], os.Args[2]
	log := watermill.NewStdLogger(false, false)
	r, err := message.NewRouter(message.RouterConfig{}, log)
	check(err)
	for name, cfg := range map[string]amqp.Config{
		"watermill":       amqp.NewDurableQueueConfig(url),
		"watermill-topic": amqp.NewDurablePubSubConfig(url, amqp.GenerateQueueNameTopicNameWithSuffix("billing")),
	} {
		pub, err := amqp.NewPublisher(cfg, log)
		check(err)
		sub, err := amqp.NewSubscriber(cfg, log)
		check(err)
		poisoned, err := amqp.NewPublisher(amqp.NewDurableQueueConfig(url), log)
		check(err)
		poison, err := middleware.PoisonQueue(poisoned, name+".poison")
		check(err)
		h := r.AddConsumerHandler("charge-"+name, name+".charges", sub, func(m *message.Message) error {
			if do == "fail" {
				return errors.New("no such customer 4711")
			}
			fmt.Println(name, "charged", string(m.Payload), m.Metadata)
			return nil
		})
		h.AddMiddleware(poison)
		if do == "fail" {
			check(sub.SubscribeInitialize(name + ".charges"))
			d, err := amqp.NewSubscriber(amqp.NewDurableQueueConfig(url), log)
			check(err)
			check(d.SubscribeInitialize(name + ".poison"))
			m := message.NewMessage(watermill.NewUUID(), []byte(`{"customer":4711}`))
			m.Metadata.Set("tenant", "acme")
			check(pub.Publish(name+".charges", m))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	check(r.Run(ctx))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
