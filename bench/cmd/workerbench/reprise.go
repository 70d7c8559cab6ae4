package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/claimcheck"
	"github.com/reprisemq/reprise/encryption"
	"github.com/reprisemq/reprise/limit"
)

// delay is the delay of retries. It exceeds the duration of the benchmark, so that all copies stay in the wait queue.
const delay = 24 * time.Hour

// consumeReprise runs a Worker whose handler returns nil.
func consumeReprise(ctx context.Context, j *job) error { return j.worker(ctx, nil, j.plain()) }

func (j *job) plain() reprise.HandlerFunc {
	return func(context.Context, *reprise.Delivery) error {
		j.meter.handled()
		return nil
	}
}

// consumeMux selects the handler by the type of the message, among ten.
func consumeMux(ctx context.Context, j *job) error { return j.worker(ctx, nil, j.mux(reprise.Route{})) }

// consumeLimited is like consumeMux, but the route has a policy and a concurrency.
func consumeLimited(ctx context.Context, j *job) error {
	return j.worker(ctx, nil, j.mux(reprise.Route{Policy: reprise.Policy{MaxAttempts: 3}, Concurrency: j.concurrency}))
}

func (j *job) mux(r reprise.Route) *reprise.Mux {
	r.Pattern, r.Handler = "order.placed", j.plain()
	mux := &reprise.Mux{Routes: []reprise.Route{r}}
	for i := range 9 {
		mux.Routes = append(mux.Routes, reprise.Route{Pattern: fmt.Sprintf("other.%d.*", i), Handler: r.Handler})
	}
	return mux
}

// consumeCollected collects messages in batches.
func consumeCollected(ctx context.Context, j *job) error {
	return j.worker(ctx, nil, reprise.Batch(j.batch, time.Second, func(_ context.Context, batch []*reprise.Delivery) []error {
		for range batch {
			j.meter.handled()
		}
		return nil
	}))
}

// bodies is the store of claim checks, for the publisher and the contender.
var bodies = filepath.Join(os.TempDir(), "workerbench-bodies")

func claimCheck() (*claimcheck.Check, error) {
	if err := os.MkdirAll(bodies, 0o700); err != nil {
		return nil, err
	}
	return claimcheck.New(claimcheck.Config{Store: claimcheck.Dir(bodies)})
}

// stored stores the bodies.
func stored() (hook, error) {
	check, err := claimCheck()
	if err != nil {
		return nil, err
	}
	return check.BeforePublish, nil
}

// consumeStored gets the bodies from the store, if the messages have references.
func consumeStored(ctx context.Context, j *job) error {
	check, err := claimCheck()
	if err != nil {
		return err
	}
	return j.worker(ctx, nil, check.Middleware(j.plain()))
}

func encryptionKeys() (*encryption.Keys, error) {
	return encryption.New(encryption.Config{Current: "key", Keys: map[string][]byte{"key": bytes.Repeat([]byte{1}, 32)}, AcceptPlaintext: true})
}

// sealed encrypts the bodies.
func sealed() (hook, error) {
	keys, err := encryptionKeys()
	if err != nil {
		return nil, err
	}
	return keys.BeforePublish, nil
}

// consumeEncrypted decrypts the bodies, if they are encrypted.
func consumeEncrypted(ctx context.Context, j *job) error {
	keys, err := encryptionKeys()
	if err != nil {
		return err
	}
	return j.worker(ctx, nil, keys.Middleware(j.plain()))
}

// failSome lets one message in 20 fail once, and retries it after 100 ms.
func failSome(ctx context.Context, j *job) error {
	j.delay = 100 * time.Millisecond
	return j.worker(ctx, nil, reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
		if m.Attempt == 1 && m.MessageID[len(m.MessageID)-1] == '7' && m.MessageID[len(m.MessageID)-2]%2 == 0 {
			return errDown
		}
		j.meter.handled()
		return nil
	}))
}

// consumeSharedRate limits the rate of all processes, far above the rate of this one.
func consumeSharedRate(ctx context.Context, j *job) error {
	j.limit = &limit.Config{Name: "bench-rate", Rate: 100_000_000}
	return consumeReprise(ctx, j)
}

// consumeSharedConcurrency limits the attempts of all processes, far above the attempts of this one.
func consumeSharedConcurrency(ctx context.Context, j *job) error {
	j.limit = &limit.Config{Name: "bench-concurrency", Concurrency: 10_000}
	return consumeReprise(ctx, j)
}

// consumeJSON decodes the bodies.
func consumeJSON(ctx context.Context, j *job) error {
	type order struct {
		Order, Customer        int
		Amount, Currency, Note string
	}
	return j.worker(ctx, nil, reprise.JSON(func(context.Context, order, *reprise.Delivery) error {
		j.meter.handled()
		return nil
	}))
}

// retryReprise runs a Worker whose handler always fails.
func retryReprise(ctx context.Context, j *job) error { return j.failEach(ctx, nil) }

// retryAnnounced is like retryReprise, but announces each retry.
func retryAnnounced(ctx context.Context, j *job) error {
	return j.failEach(ctx, &reprise.Config{Announce: true})
}

func (j *job) failEach(ctx context.Context, config *reprise.Config) error {
	return j.worker(ctx, config, reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error {
		j.meter.handled()
		return errDown
	}))
}

func (j *job) worker(ctx context.Context, config *reprise.Config, handler reprise.Handler) error {
	client, err := reprise.Dial(ctx, j.url, config)
	if err != nil {
		return err
	}
	worker := reprise.WorkerConfig{
		Queue: j.queue, Handler: handler, Policy: reprise.Policy{Backoff: backoff.Fixed(j.delay)},
		Concurrency: j.concurrency, Prefetch: j.prefetch,
	}
	if j.partitions > 0 {
		worker.OrderBy = &reprise.Keyed{Partitions: j.partitions}
	}
	if j.limit != nil {
		shared, err := limit.New(client, *j.limit)
		if err != nil {
			return err
		}
		defer shared.Close()
		for shared.Share() == 0 { // not part of the measurement
			time.Sleep(time.Millisecond)
		}
		worker.Limiter = shared
	}
	w, err := reprise.NewWorker(client, worker)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() {
		select {
		case <-j.meter.all:
			cancel() // Run then drains and returns
		case <-ctx.Done():
		}
	})
	err = w.Run(ctx)
	j.meter.end()
	cancel()
	running.Wait()
	return errors.Join(err, client.Close(context.Background()))
}

// publishReprise calls Client.Publish from several goroutines.
func publishReprise(ctx context.Context, j *job) error {
	client, err := reprise.Dial(ctx, j.url, nil)
	if err != nil {
		return err
	}
	var next atomic.Int64
	var publishing sync.WaitGroup
	errs := make([]error, j.concurrency)
	for i := range errs {
		publishing.Go(func() {
			for errs[i] == nil {
				n := int(next.Add(1)) - 1
				if n >= j.messages {
					return
				}
				errs[i] = client.Publish(ctx, order(n, j.queue))
				j.meter.handled()
			}
		})
	}
	publishing.Wait()
	j.meter.end()
	return errors.Join(append(errs, client.Close(context.Background()))...)
}

// order returns message i as a reprise.Message.
func order(i int, queue string) *reprise.Message {
	return &reprise.Message{
		RoutingKey:  queue,
		Headers:     map[string]any{"tenant": "acme"},
		ContentType: "application/json",
		MessageID:   fmt.Sprintf("order-%08d", i),
		Timestamp:   time.Now(),
		Type:        "order.placed",
		Body:        fmt.Appendf(nil, `{"order":1%07d,"customer":4711,"amount":"12.50","currency":"EUR"}`, i),
	}
}
