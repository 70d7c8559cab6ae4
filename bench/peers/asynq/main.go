// Command asynq is the peer that uses asynq with Redis.
package main

import (
	"context"
	"time"

	"github.com/hibiken/asynq"

	"github.com/reprisemq/reprise/bench/peers/contract"
)

func main() { contract.Main(contract.Peer{Publish: publish, Work: work, Replay: replay}) }

// publishers is the number of goroutines that publish, because a client of asynq stores one task at a time.
const publishers = 32

func publish(ctx context.Context, c contract.Config) (func([][]byte) error, func() error, error) {
	redis, err := asynq.ParseRedisURI(c.URL)
	if err != nil {
		return nil, nil, err
	}
	client := asynq.NewClient(redis)
	return func(payloads [][]byte) error {
		return contract.Parallel(payloads, publishers, func(payload []byte) error {
			_, err := client.EnqueueContext(ctx, asynq.NewTask("peer", payload), asynq.Queue(c.Queue), asynq.MaxRetry(c.Retries))
			return err
		})
	}, client.Close, nil
}

func work(ctx context.Context, c contract.Config, handle contract.Handler) error {
	redis, err := asynq.ParseRedisURI(c.URL)
	if err != nil {
		return err
	}
	server := asynq.NewServer(redis, asynq.Config{
		Concurrency: c.Concurrency, Queues: map[string]int{c.Queue: 1}, LogLevel: asynq.WarnLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return c.Delay },
	})
	err = server.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		retried, _ := asynq.GetRetryCount(ctx)
		return handle(t.Payload(), 1+retried)
	}))
	if err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}

func replay(_ context.Context, c contract.Config) error {
	redis, err := asynq.ParseRedisURI(c.URL)
	if err != nil {
		return err
	}
	inspector := asynq.NewInspector(redis)
	defer inspector.Close()
	_, err = inspector.RunAllArchivedTasks(c.Queue)
	return err
}
