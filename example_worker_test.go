package reprise_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/topology"
)

// run starts a worker on a broker in this process, publishes the bodies to the worker's queue, and returns after the channel
// finished is closed. Most examples in this file use it.
func run(cfg reprise.WorkerConfig, finished <-chan struct{}, bodies ...string) {
	messages := make([]*reprise.Message, len(bodies))
	for i, body := range bodies {
		messages[i] = &reprise.Message{MessageID: fmt.Sprint("id-", i+1), Body: []byte(body)}
	}
	runMessages(reprise.Config{}, cfg, finished, messages...)
}

// runMessages is like run, but configures the client and publishes the given messages.
func runMessages(config reprise.Config, cfg reprise.WorkerConfig, finished <-chan struct{}, messages ...*reprise.Message) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b, _ := broker.New(broker.Config{})
	defer b.Shutdown(ctx)
	config.Dial = b.DialContext
	client, err := reprise.Dial(ctx, "amqp://guest:guest@broker/", &config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(ctx)
	if cfg.Lanes > 0 {
		cfg.Strategy.Route = topology.Lanes{Count: cfg.Lanes}
	}
	for _, t := range []topology.Topology{cfg.Topology, cfg.Strategy.WithDefaults().Route.Topology(cfg.Queue)} {
		if err := client.Declare(ctx, t); err != nil {
			fmt.Println(err)
			return
		}
	}
	for _, m := range messages {
		m.RoutingKey = cmp.Or(m.RoutingKey, cfg.Queue)
		if err := client.Publish(ctx, m); err != nil {
			fmt.Println(err)
			return
		}
	}
	worker, err := reprise.NewWorker(client, cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := worker.Run(ctx); err != nil {
			fmt.Println(err)
		}
	})
	<-finished
	_ = worker.Shutdown(ctx)
	running.Wait()
}

// The handler gets the decoded body. If the body cannot be decoded, the message is parked.
func ExampleJSON() {
	type order struct {
		ID    int
		Cents int
	}
	done := make(chan struct{})
	run(reprise.WorkerConfig{
		Queue: "orders",
		Handler: reprise.JSON(func(_ context.Context, o order, m *reprise.Delivery) error {
			fmt.Printf("order %d: %d cents\n", o.ID, o.Cents)
			close(done)
			return nil
		}),
	}, done, `{"id": 17, "cents": 1250}`)
	// Output: order 17: 1250 cents
}

// The error of a handler determines the next step.
func ExampleHandler() {
	done := make(chan struct{})
	run(reprise.WorkerConfig{
		Queue:  "orders",
		Policy: reprise.Policy{Backoff: backoff.Fixed(time.Millisecond)},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			fmt.Println("attempt", m.Attempt)
			switch m.Attempt {
			case 1:
				return errors.New("the till is busy") // retried after the policy's delay
			case 2:
				return reprise.RetryAfter(20*time.Millisecond, errors.New("the till is busy for 20 ms")) // retried after 20 ms
			}
			defer close(done)
			return reprise.Park(errors.New("no such article")) // moved to orders.failed, where an operator examines it
		}),
	}, done, "order 1")
	// Output:
	// attempt 1
	// attempt 2
	// attempt 3
}

// The order cannot be processed before its customer exists. This is not a failure, so the attempt does not count.
func ExampleSnooze() {
	done := make(chan struct{})
	runs := 0
	run(reprise.WorkerConfig{
		Queue:  "orders",
		Policy: reprise.Policy{MaxAttempts: 1},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if runs++; runs < 4 {
				return reprise.Snooze(10*time.Millisecond, errors.New("customer not imported yet"))
			}
			fmt.Printf("run %d of attempt %d\n", runs, m.Attempt)
			close(done)
			return nil
		}),
	}, done, "order 1")
	// Output: run 4 of attempt 1
}

// Each attempt has a time limit.
func ExampleTimeout() {
	done := make(chan struct{})
	run(reprise.WorkerConfig{
		Queue:      "orders",
		Policy:     reprise.Policy{Backoff: backoff.Fixed(time.Millisecond)},
		Middleware: []reprise.Middleware{reprise.Timeout(20 * time.Millisecond)},
		Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
			if m.Attempt == 1 {
				<-ctx.Done() // the service does not respond
				return ctx.Err()
			}
			fmt.Println(m.Errors[0].Error)
			close(done)
			return nil
		}),
	}, done, "order 1")
	// Output: reprise: attempt timed out (20ms): context deadline exceeded
}

// To keep the order of messages, only one of several workers consumes the queue (single active consumer), that worker
// handles one message at a time, and it repeats a failed handler immediately.
func ExampleWorkerConfig_singleActiveConsumer() {
	done := make(chan struct{})
	queues := topology.Buckets{}.Topology("orders")
	queues.Queues[0].Args["x-single-active-consumer"] = true
	failed := false
	run(reprise.WorkerConfig{
		Queue:       "orders",
		Topology:    queues,
		Concurrency: 1,
		Middleware:  []reprise.Middleware{reprise.Immediate(30, 10*time.Millisecond)},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if !failed {
				failed = true
				return errors.New("the till is busy")
			}
			fmt.Printf("%s\n", m.Body)
			if string(m.Body) == "order 3" {
				close(done)
			}
			return nil
		}),
	}, done, "order 1", "order 2", "order 3")
	// Output:
	// order 1
	// order 2
	// order 3
}

// Middleware is a function that wraps a handler.
func ExampleMiddleware() {
	timed := func(next reprise.Handler) reprise.Handler {
		return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
			err := next.Handle(ctx, m)
			fmt.Printf("%s, attempt %d: %v\n", m.MessageID, m.Attempt, err)
			return err
		})
	}
	done := make(chan struct{})
	run(reprise.WorkerConfig{
		Queue:      "orders",
		Middleware: []reprise.Middleware{timed, reprise.Timeout(5 * time.Second)},
		Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
			defer close(done)
			_, limited := ctx.Deadline()
			fmt.Println("has a deadline:", limited)
			return nil
		}),
	}, done, "order 1")
	// Output:
	// has a deadline: true
	// id-1, attempt 1: <nil>
}

// The worker repeats a failed run up to twice, a tenth of a second apart, before the message moves to a wait queue. Use
// Immediate for transient errors.
func ExampleImmediate() {
	done := make(chan struct{})
	runs := 0
	run(reprise.WorkerConfig{
		Queue:      "orders",
		Middleware: []reprise.Middleware{reprise.Immediate(2, 100*time.Millisecond)},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if runs++; runs < 3 {
				return errors.New("deadlock detected, please retry")
			}
			fmt.Printf("run %d of attempt %d\n", runs, m.Attempt)
			close(done)
			return nil
		}),
	}, done, "order 1")
	// Output: run 3 of attempt 1
}

// An annotation records the progress of an attempt, so that the next attempt continues from there.
func ExampleAnnotate() {
	parts := []string{"reserve", "charge", "ship"}
	done := make(chan struct{})
	run(reprise.WorkerConfig{
		Queue:  "orders",
		Policy: reprise.Policy{Backoff: backoff.Fixed(time.Millisecond)},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			next, _ := m.Headers["done"].(int64)
			for i, part := range parts[next:] {
				if part == "ship" && m.Attempt == 1 {
					return reprise.Annotate(errors.New("no lorry"), map[string]any{"done": next + int64(i)})
				}
				fmt.Println(part)
			}
			close(done)
			return nil
		}),
	}, done, "order 1")
	// Output:
	// reserve
	// charge
	// ship
}

// A downstream service must not receive calls for some time, so the worker does not consume during this time.
func ExamplePauseFor() {
	done := make(chan struct{})
	var paused time.Time
	run(reprise.WorkerConfig{
		Queue: "purges",
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if paused.IsZero() {
				paused = time.Now()
				return reprise.PauseFor(50*time.Millisecond, errors.New("507 queue is full"))
			}
			if string(m.Body) == "second" {
				fmt.Println("paused for 50 ms:", time.Since(paused) >= 50*time.Millisecond)
				close(done)
			}
			return nil
		}),
	}, done, "first", "second")
	// Output: paused for 50 ms: true
}

// The worker handles one of several equal messages that arrive within the window, here 50 ms.
func ExampleDebounce() {
	done := make(chan struct{})
	run(reprise.WorkerConfig{
		Queue:    "reindex",
		Debounce: &reprise.Debounce{Window: 50 * time.Millisecond, Key: reprise.ContentKey},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			fmt.Printf("%s, the newest is %s\n", m.Body, m.MessageID)
			close(done)
			return nil
		}),
	}, done, "release 17", "release 17", "release 17")
	// Output: release 17, the newest is id-3
}

// pace is a Limiter that lets one attempt start at each tick.
type pace struct{ ticks <-chan time.Time }

func (p pace) Wait(ctx context.Context) error {
	select {
	case <-p.ticks:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A user-defined Limiter. The *rate.Limiter of golang.org/x/time/rate also implements Limiter: rate.NewLimiter(100, 10)
// allows 100 attempts per second and bursts of 10.
func ExampleLimiter() {
	done := make(chan struct{})
	run(reprise.WorkerConfig{
		Queue:       "orders",
		Concurrency: 10,
		Limiter:     pace{time.Tick(10 * time.Millisecond)}, // 100 attempts per second
		Policy:      reprise.Policy{MaxAttempts: 20, GiveUpAfter: 24 * time.Hour},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			fmt.Printf("charged %s\n", m.Body)
			close(done)
			return nil
		}),
	}, done, "order 1")
	// Output: charged order 1
}

// With AckThenPublish, a crash can lose the message, but cannot duplicate it.
func ExampleOrder() {
	done := make(chan struct{})
	run(reprise.WorkerConfig{
		Queue:  "newsletters",
		Order:  reprise.AckThenPublish,
		Policy: reprise.Policy{Backoff: backoff.Fixed(time.Millisecond)},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if m.Attempt == 1 {
				return errors.New("mailbox is locked")
			}
			fmt.Println("sent at attempt", m.Attempt)
			close(done)
			return nil
		}),
	}, done, "dear reader")
	// Output: sent at attempt 2
}

// The broker itself delays a failed message. RabbitMQ dead-letters it to a wait queue, and from there back to the work
// queue.
func ExampleWorkerConfig_deadLettering() {
	done := make(chan struct{})
	run(reprise.WorkerConfig{
		Queue:    "orders",
		Strategy: topology.Strategy{Route: topology.DeadLettering{Delay: 10 * time.Millisecond}},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if m.Attempt < 3 {
				return errors.New("not yet")
			}
			fmt.Println("attempt", m.Attempt)
			close(done)
			return nil
		}),
	}, done, "order 1")
	// Output: attempt 3
}

// An Observer receives the events of each message.
func ExampleObserver() {
	done := make(chan struct{})
	var once sync.Once
	observer := reprise.ObserverFunc(func(e reprise.Event) {
		switch e.Kind {
		case reprise.EventStarted, reprise.EventParked:
			line, _ := json.Marshal(struct {
				Event   string
				Attempt int
			}{e.Kind.String(), e.Attempt})
			fmt.Println(string(line))
			if e.Kind == reprise.EventParked {
				once.Do(func() { close(done) })
			}
		}
	})
	ctx := context.Background()
	b, _ := broker.New(broker.Config{})
	defer b.Shutdown(ctx)
	client, _ := reprise.Dial(ctx, "amqp://guest:guest@broker/", &reprise.Config{Dial: b.DialContext, Observer: observer})
	defer client.Close(ctx)
	worker, _ := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue:   "orders",
		Policy:  reprise.Policy{MaxAttempts: 2, Backoff: backoff.Fixed(time.Millisecond)},
		Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return errors.New("no") }),
	})
	_ = client.Declare(ctx, topology.Buckets{}.Topology("orders"))
	_ = client.Publish(ctx, &reprise.Message{RoutingKey: "orders"})
	go worker.Run(ctx)
	<-done
	_ = worker.Shutdown(ctx) // waits for Run
	// Output:
	// {"Event":"started","Attempt":1}
	// {"Event":"started","Attempt":2}
	// {"Event":"parked","Attempt":2}
}

// A handler saves its progress, so that the next attempt continues. With a Lease, it may run for hours.
func ExampleSaveCheckpoint() {
	finished := make(chan struct{})
	run(reprise.WorkerConfig{
		Queue:  "imports",
		Lease:  time.Minute,
		Policy: reprise.Policy{Backoff: backoff.Fixed(time.Millisecond)},
		Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
			page, _ := strconv.Atoi(string(reprise.Checkpoint(ctx))) // 0 without a checkpoint
			for ; page < 4; page++ {
				fmt.Println("attempt", m.Attempt, "page", page)
				if page == 2 && m.Attempt == 1 {
					return errors.New("connection reset")
				}
				if err := reprise.SaveCheckpoint(ctx, []byte(strconv.Itoa(page+1))); err != nil {
					return err
				}
			}
			close(finished)
			return nil
		}),
	}, finished, "catalog.csv")
	// Output:
	// attempt 1 page 0
	// attempt 1 page 1
	// attempt 1 page 2
	// attempt 2 page 2
	// attempt 2 page 3
}

// A burst of one tenant does not delay the tenants in other lanes.
func ExampleLaneQueue() {
	const lanes = 16
	lane := func(tenant string) string { return reprise.LaneQueue("orders", tenant, lanes) }
	finished, handled := make(chan struct{}), 0
	runMessages(reprise.Config{}, reprise.WorkerConfig{
		Queue: "orders",
		Lanes: lanes,
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			fmt.Println(string(m.Body))
			if handled++; handled == 3 {
				close(finished)
			}
			return nil
		}),
	}, finished,
		&reprise.Message{RoutingKey: lane("acme"), Body: []byte("acme 1")},
		&reprise.Message{RoutingKey: lane("acme"), Body: []byte("acme 2")},
		&reprise.Message{RoutingKey: lane("globex"), Body: []byte("globex 1")},
	)
	// Unordered output:
	// acme 1
	// acme 2
	// globex 1
}
