// Command river is the peer that uses river with PostgreSQL.
package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/reprisemq/reprise/bench/peers/contract"
)

func main() { contract.Main(contract.Peer{Publish: publish, Work: work, Replay: replay}) }

// args is a job. Its JSON is the payload.
type args struct{ json.RawMessage }

func (args) Kind() string { return "peer" }

type worker struct {
	river.WorkerDefaults[args]
	handle contract.Handler
	delay  time.Duration
}

func (w *worker) Work(_ context.Context, job *river.Job[args]) error {
	return w.handle(job.Args.RawMessage, job.Attempt)
}

func (w *worker) NextRetry(*river.Job[args]) time.Time { return time.Now().Add(w.delay) }

// open creates the tables, if necessary. The worker has the fetch intervals of river's own benchmark, because the default of
// 100 ms limits a worker to ten fetches of Concurrency jobs per second.
func open(ctx context.Context, c contract.Config, w *worker) (*river.Client[pgx.Tx], func(), error) {
	pool, err := pgxpool.New(ctx, c.URL)
	if err != nil {
		return nil, nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return nil, nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, nil, err
	}
	config := &river.Config{}
	if w != nil {
		config.Workers = river.NewWorkers()
		river.AddWorker(config.Workers, w)
		config.Queues = map[string]river.QueueConfig{c.Queue: {MaxWorkers: c.Concurrency}}
		config.FetchCooldown, config.FetchPollInterval = 2*time.Millisecond, 20*time.Millisecond
	}
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	return client, pool.Close, err
}

func publish(ctx context.Context, c contract.Config) (func([][]byte) error, func() error, error) {
	client, end, err := open(ctx, c, nil)
	if err != nil {
		return nil, nil, err
	}
	return func(payloads [][]byte) error {
		jobs := make([]river.InsertManyParams, len(payloads))
		for i, payload := range payloads {
			jobs[i] = river.InsertManyParams{Args: args{payload}, InsertOpts: &river.InsertOpts{Queue: c.Queue, MaxAttempts: 1 + c.Retries}}
		}
		_, err := client.InsertManyFast(ctx, jobs)
		return err
	}, func() error { end(); return nil }, nil
}

func work(ctx context.Context, c contract.Config, handle contract.Handler) error {
	client, end, err := open(ctx, c, &worker{handle: handle, delay: c.Delay})
	if err != nil {
		return err
	}
	defer end()
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return client.Stop(context.WithoutCancel(ctx))
}

// replay retries all discarded jobs. river has no operation for several jobs.
func replay(ctx context.Context, c contract.Config) error {
	client, end, err := open(ctx, c, nil)
	if err != nil {
		return err
	}
	defer end()
	for {
		page, err := client.JobList(ctx, river.NewJobListParams().Queues(c.Queue).States(rivertype.JobStateDiscarded).First(10000))
		if err != nil || len(page.Jobs) == 0 {
			return err
		}
		for _, job := range page.Jobs {
			if _, err := client.JobRetry(ctx, job.ID); err != nil {
				return err
			}
		}
	}
}
