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

// A program is a client with a worker, as they run in a process of their own. It
// ends by the death of its wire, or in order.
type program struct {
	wire   *wire
	client *reprise.Client
	stop   context.CancelFunc
	err    error         // of the worker
	ended  chan struct{} // closed when err is set

	mu      sync.Mutex
	running int // attempts
}

// begin starts a program. The handler is given its wire.
func begin(ctx context.Context, b Broker, cfg reprise.WorkerConfig, handle func(*wire, *reprise.Message) error) (*program, error) {
	p := &program{wire: newWire(b.dial()), ended: make(chan struct{})}
	var err error
	p.client, err = reprise.Dial(ctx, b.URL, &reprise.Config{
		Dial: p.wire.Dial, Logger: b.Logger, Observer: p, Reconnect: backoff.Fixed(10 * time.Millisecond),
	})
	if err != nil {
		return nil, err
	}
	cfg.Handler = reprise.HandlerFunc(func(_ context.Context, m *reprise.Message) error { return handle(p.wire, m) })
	cfg.Prefetch = 1 // so that what crosses the wire belongs to this one
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

// end ends the program and waits for it. Of one whose process is gone already,
// only this end is left to be swept up.
func (p *program) end() error {
	p.stop()
	gone := p.dead()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if gone {
		cancel()
		_ = p.client.Close(ctx) // its worker need not wait for a connection
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
	case reprise.EventDone, reprise.EventRetried, reprise.EventParked, reprise.EventGivenBack, reprise.EventDropped, reprise.EventLost:
		p.running = max(0, p.running-1) // what has used up its attempts is parked without another one
	}
}

// idle returns an error while an attempt that has begun is neither settled nor
// known to be beyond that.
func (p *program) idle() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running > 0 {
		return fmt.Errorf("%d attempts are not settled", p.running)
	}
	return nil
}

// Broker is where everything happens: see package stage.
type Broker struct {
	URL    string // amqp://…: a connection that can be cut at a frame is a plain one
	Dial   dialFunc
	Logger *slog.Logger
}
