// Command reprise is the peer that uses package reprise. The command reprise replays its messages.
package main

import (
	"context"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/bench/peers/contract"
	"github.com/reprisemq/reprise/topology"
)

func main() { contract.Main(contract.Peer{Publish: publish, Work: work}) }

func publish(ctx context.Context, c contract.Config) (func([][]byte) error, func() error, error) {
	client, err := reprise.Dial(ctx, c.URL, nil)
	if err != nil {
		return nil, nil, err
	}
	store := func(payloads [][]byte) error {
		messages := make([]*reprise.Message, len(payloads))
		for i, payload := range payloads {
			messages[i] = &reprise.Message{RoutingKey: c.Queue, Body: payload}
		}
		return client.PublishBatch(ctx, messages)
	}
	end := func() error { return client.Close(context.Background()) }
	return store, end, client.Declare(ctx, topology.Buckets{}.Topology(c.Queue))
}

func work(ctx context.Context, c contract.Config, handle contract.Handler) error {
	client, err := reprise.Dial(ctx, c.URL, nil)
	if err != nil {
		return err
	}
	defer client.Close(context.Background())
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue:       c.Queue,
		Concurrency: c.Concurrency,
		Policy:      reprise.Policy{MaxAttempts: 1 + c.Retries, Backoff: backoff.Fixed(c.Delay)},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			return handle(m.Body, m.Attempt)
		}),
	})
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}
