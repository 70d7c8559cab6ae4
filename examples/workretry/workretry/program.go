package workretry

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
)

// A program simulates a process with a client and a worker. It ends when its wire is killed or when end is called.
type program struct {
	wire   *wire
	client *reprise.Client
	stop   context.CancelFunc
	err    error         // error of Worker.Run
	ended  chan struct{} // closed when err is set

	mu      sync.Mutex
	running int // number of unsettled attempts
}

// begin starts a program. The function handle receives the wire of the program.
func begin(ctx context.Context, b Broker, cfg reprise.WorkerConfig, handle func(*wire, *reprise.Delivery) error) (*program, error) {
	p := &program{wire: newWire(b.dial()), ended: make(chan struct{})}
	var err error
	p.client, err = reprise.Dial(ctx, b.URL, &reprise.Config{
		Dial: p.wire.Dial, Logger: b.Logger, Observer: p, Reconnect: backoff.Fixed(10 * time.Millisecond),
	})
	if err != nil {
		return nil, err
	}
	cfg.Handler = reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error { return handle(p.wire, m) })
	cfg.Prefetch = 1 // so that all frames on the wire that settle a message belong to one message
	cfg.DrainTimeout = time.Millisecond
	w, err := reprise.NewWorker(p.client, cfg)
	if err != nil {
		_ = p.client.Close(ctx)
		return nil, err
	}
	ctx, p.stop = context.WithCancel(ctx)
	go func() {
		defer close(p.ended)
		p.err = w.Run(ctx)
	}()
	return p, nil
}

// end stops the program gracefully and waits until it has stopped. If the wire is dead, end only releases resources,
// and returns nil.
func (p *program) end() error {
	p.stop()
	gone := p.dead()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if gone {
		cancel()
		_ = p.client.Close(ctx) // the worker must not wait for a connection
	}
	<-p.ended
	if gone {
		return nil
	}
	if err := p.client.Close(ctx); err != nil {
		return err
	}
	return p.err
}

func (p *program) dead() bool {
	select {
	case <-p.wire.died:
		return true
	default:
		return false
	}
}

// Observe implements reprise.Observer.
func (p *program) Observe(e reprise.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Kind {
	case reprise.EventStarted:
		p.running++
	case reprise.EventDone, reprise.EventRetried, reprise.EventParked, reprise.EventRequeued, reprise.EventDropped, reprise.EventLost:
		p.running = max(0, p.running-1) // a message whose attempts are exhausted is parked without EventStarted
	}
}

// idle returns an error while the message of an attempt is not settled.
func (p *program) idle() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running > 0 {
		return fmt.Errorf("all attempts must be settled: got %d unsettled", p.running)
	}
	return nil
}

// Broker configures the connections to the broker.
type Broker struct {
	URL    string // amqp://…, because Compare cannot parse the frames of TLS connections
	Dial   dialFunc
	Logger *slog.Logger
}
