package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/archive/console"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/history"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/topology"
)

// failuresPerSecond is the rate of new failures under load. replaysPerSecond is the rate of the replay.
const (
	failuresPerSecond = 500
	replaysPerSecond  = 100
)

// system is a broker in memory, an archive, an ingest, a replayer and a console.
type system struct {
	broker   *broker.Broker
	client   *reprise.Client
	archive  *store.Archive
	replayer *replay.Replayer
	console  *console.Console
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

func newSystem(ctx context.Context, a *store.Archive, past *history.History) (_ *system, err error) {
	s := &system{archive: a}
	if s.broker, err = broker.New(broker.Config{}); err != nil {
		return nil, err
	}
	if s.client, err = reprise.Dial(ctx, "amqp://guest:guest@broker/", &reprise.Config{Dial: s.broker.DialContext}); err != nil {
		return nil, err
	}
	var declared topology.Topology
	var failedQueues []string
	for i := range queues {
		work := fmt.Sprint("queue-", i)
		// Without a limit, the queue would grow, because no worker consumes the replayed messages.
		declared.Queues = append(declared.Queues, topology.Queue{Name: work, Args: topology.Table{"x-max-length": int64(1000)}}, topology.Queue{Name: topology.FailedQueue(work)})
		failedQueues = append(failedQueues, topology.FailedQueue(work))
	}
	if err := s.client.Declare(ctx, declared); err != nil {
		return nil, err
	}
	s.replayer = replay.New(s.client, a, replay.Config{})
	ingest, err := ingest.New(s.client, a, ingest.Config{Queues: failedQueues})
	if err != nil {
		return nil, err
	}
	if s.console, err = console.New(console.Config{Archive: a, Replayer: s.replayer, History: past, Logger: slog.Default()}); err != nil {
		return nil, err
	}
	ctx, s.cancel = context.WithCancel(ctx)
	for _, run := range []func(context.Context) error{s.replayer.Run, ingest.Run} {
		s.running.Go(func() {
			if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				log.Print(err)
			}
		})
	}
	return s, nil
}

func (s *system) close() {
	s.cancel()
	s.running.Wait()
	_ = s.client.Close(context.Background())
	_ = s.broker.Shutdown(context.Background())
}

// finish waits for the running replays.
func (s *system) finish(ctx context.Context) error {
	for {
		s.replayer.Wake()
		running, err := s.archive.Running(ctx)
		if err != nil || len(running) == 0 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// load starts a replay, and publishes failures until the caller calls unload.
func (s *system) load(ctx context.Context) (unload func() error, err error) {
	replay, err := s.archive.BeginReplay(ctx, failed.Plan{Filter: failed.Filter{Queue: "queue-5"}, Rate: replaysPerSecond, IgnoreSame: true}, "cli:bench")
	if err != nil {
		return nil, err
	}
	s.replayer.Wake()
	ctx, cancel := context.WithCancel(ctx)
	before, err := s.archive.Count(ctx, failed.Filter{})
	if err != nil {
		cancel()
		return nil, err
	}
	begun := time.Now()
	done := make(chan error, 1)
	go func() { done <- s.publish(ctx) }()
	return func() error {
		cancel()
		err := <-done
		ctx := context.Background()
		after, err2 := s.archive.Count(ctx, failed.Filter{})
		log.Printf("%.0f failures per second came in", float64(after.N-before.N)/time.Since(begun).Seconds())
		_ = s.archive.EndReplay(ctx, replay.ID, failed.ReplayCancelled, "measured", "cli:bench")
		return errors.Join(err, err2, s.finish(ctx))
	}, nil
}

// publish publishes failures to the failed queues, like workers that park messages, until ctx is done.
func (s *system) publish(ctx context.Context) error {
	const each = 50 * time.Millisecond
	tick := time.NewTicker(each)
	defer tick.Stop()
	r := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 5))
	for i := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var batch []*reprise.Message
		for range failuresPerSecond * int(each/time.Millisecond) / 1000 {
			i++
			m := failure(r, i, time.Now())
			batch = append(batch, &reprise.Message{
				RoutingKey: m.FailedQueue, Body: m.Body, Headers: m.Headers, ContentType: "application/json", MessageID: m.Properties.MessageID,
			})
		}
		if err := errors.Join(s.client.PublishBatch(ctx, batch)); err != nil && ctx.Err() == nil {
			return err
		}
	}
}
