package explore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// A program is a client with a worker. It simulates a separate process.
type program struct {
	tap    *testkit.Tap
	client *reprise.Client
	stop   context.CancelFunc
	ended  chan struct{}
	log    journal
	first  account // events of its first message

	mu     sync.Mutex
	events map[reprise.EventKind]int
	err    error // result of Run
}

// begin returns a program that is ready and is the only consumer of the queue.
func (x *explorer) begin() (*program, error) {
	if x.messages > 0 {
		if err := await(x.unused); err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &program{
		tap:  testkit.NewTap(x.dial, publishing, consuming),
		stop: stop, ended: make(chan struct{}),
		events: make(map[reprise.EventKind]int),
	}
	var err error
	p.client, err = reprise.Dial(ctx, x.url, &reprise.Config{
		Dial: p.tap.Dial, Observer: p, Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
		Reconnect: backoff.Exponential{Initial: 5 * time.Millisecond, Max: 100 * time.Millisecond},
		// Otherwise the worker reads the arguments of its queue on the connection whose frames the scripts hold.
		Inspect: func(_ context.Context, queue string) (topology.Queue, error) { return topology.Queue{Name: queue}, nil },
	})
	if err != nil {
		stop()
		return nil, err
	}
	w, err := reprise.NewWorker(p.client, x.config())
	if err != nil {
		stop()
		return nil, errors.Join(err, p.client.Close(context.Background()))
	}
	go func() {
		defer close(p.ended)
		err := w.Run(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.err = err
	}()
	if err := await(p.ready); err != nil {
		x.end(p)
		return nil, fmt.Errorf("%w\n%s", err, &p.log)
	}
	return p, nil
}

func (x *explorer) config() reprise.WorkerConfig {
	cfg := reprise.WorkerConfig{
		Queue: x.queue,
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			if m.MessageID == warmUp {
				return nil
			}
			return x.life.handle(m)
		}),
		Strategy:     topology.Strategy{Route: x.way.Route},
		Order:        x.way.Order,
		Policy:       reprise.Policy{MaxAttempts: 10, Backoff: backoff.Fixed(delay)},
		Prefetch:     1, // no concurrent deliveries
		DrainTimeout: time.Millisecond,
	}
	if x.Classic {
		cfg.Topology.Queues = x.way.classic(x.queue)
	}
	return cfg
}

// unused returns an error while the previous program still consumes from the queue.
func (x *explorer) unused() error {
	q, err := x.ch.QueueDeclarePassive(x.queue, true, false, false, false, nil)
	if err == nil && q.Consumers > 0 {
		err = errors.New("broker still has the connection of the previous program")
	}
	return err
}

// ready returns an error until the program consumes and its two publishers are ready.
func (p *program) ready() error {
	p.mu.Lock()
	err := p.err
	p.mu.Unlock()
	confirming := p.tap.Crossed(testkit.Crossing{Line: publishing, Direction: testkit.ToClient, Name: "confirm.select-ok"})
	if err == nil && (confirming < 2 || p.count(reprise.EventConsuming) == 0) {
		err = errors.New("the program is not ready")
	}
	return err
}

// end stops a program. It waits for the program only if its connections work, because a program without connections takes
// longer to stop.
func (x *explorer) end(p *program) {
	p.tap.Release()
	p.stop()
	left := make(chan struct{})
	x.leaving.Go(func() {
		defer close(left)
		<-p.ended
		_ = p.client.Close(context.Background())
		p.tap.Close()
	})
	if !p.tap.Refusing() {
		<-left
	}
}

// Observe implements reprise.Observer.
func (p *program) Observe(e reprise.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events[e.Kind]++
}

// count returns the number of events of the given kinds.
func (p *program) count(kinds ...reprise.EventKind) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, k := range kinds {
		n += p.events[k]
	}
	return n
}

// idle returns an error until the worker has settled all attempts, or knows that it cannot settle them.
func (p *program) idle() error {
	settled := p.count(reprise.EventDone, reprise.EventRetried, reprise.EventParked, reprise.EventRequeued, reprise.EventDropped, reprise.EventLost)
	if begun := p.count(reprise.EventStarted); settled != begun {
		return fmt.Errorf("worker must settle %d attempts: got %d", begun, settled)
	}
	return nil
}

// notice waits until the program has noticed the loss of the given connections.
func (p *program) notice(lines []string) {
	events := map[string]reprise.EventKind{publishing: reprise.EventDisconnected, consuming: reprise.EventInterrupted}
	for _, line := range lines {
		_ = await(func() error {
			if p.count(events[line]) == 0 {
				return errors.New("program has not noticed the loss of its connections")
			}
			return nil
		})
	}
}

// journal keeps the log for error messages.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// String returns the beginning of the log, because the cause of an error is usually there.
func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.text.String()
	return s[:min(len(s), 4000)]
}
