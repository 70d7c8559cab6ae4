package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
)

// url is the address of the broker on the Network.
const url = "amqp://guest:guest@broker"

// workerName is the owner of the connections of a worker process.
func workerName(w Work, n int) string { return fmt.Sprintf("%s.%d", w.Name, n) }

// worker is a process with one worker. It can stop and restart.
type worker struct {
	l      *Life
	work   Work
	design design
	built  built
	name   string

	turn chan struct{} // held during a start or stop of the process

	mu      sync.Mutex
	process *process // nil: the worker is down
	down    *Disturbance
}

// process is one run of a worker process.
type process struct {
	client *reprise.Client
	worker *reprise.Worker
	dead   chan struct{} // closed when the process has crashed
	ended  chan struct{} // closed when Run has returned
	err    error
}

func init() {
	RegisterActor(func(l *Life) (all []Actor) {
		for _, w := range l.Script.Shape.Works {
			d := findDesign(w.Design)
			for n := range w.Workers {
				all = append(all, &worker{l: l, work: w, design: d, built: d.Build(w), name: workerName(w, n), turn: make(chan struct{}, 1)})
			}
		}
		return all
	})
	RegisterOwners(func(s Shape) (all []string) {
		for _, w := range s.Works {
			for n := range w.Workers {
				all = append(all, workerName(w, n))
			}
		}
		return all
	})
	draw := func(random *rand.Rand, shape Shape) []Step {
		w := oneOf(random, shape.Works...)
		return []Step{{
			On: workerName(w, random.IntN(w.Workers)), N: oneOf(random, 0, 100, 5000, 30000),
			For: between(random, 10*time.Millisecond, time.Hour),
		}}
	}
	RegisterAct(Act{Name: "stop-worker", Weight: 4, Draw: draw, Do: func(l *Life, s Step) {
		l.worker(s.On).outage("stop", s.For, func(p *process) { p.stop(l, s.On, time.Duration(s.N)*time.Millisecond) })
	}})
	RegisterAct(Act{Name: "crash-worker", Weight: 4, Fault: true, Draw: draw, Do: func(l *Life, s Step) {
		l.worker(s.On).outage("crash", s.For, func(p *process) { p.crash(l, s.On) })
	}})
}

func (l *Life) worker(name string) *worker {
	for _, a := range l.actors {
		if w, ok := a.(*worker); ok && w.name == name {
			return w
		}
	}
	return nil
}

// Begin implements Actor.
func (w *worker) Begin(l *Life) {
	if w.design.Loses {
		l.Explain(": message may be lost queue=" + w.built.config.Queue)
		l.Explain(": message lost queue=" + w.built.config.Queue)
	}
	if err := w.start(); err != nil {
		l.Broken(promiseWorks, "%s: %v", w.name, err)
	}
}

const promiseWorks = "Run returns nil after a drain"

// start starts the process and waits until it can reach the broker.
func (w *worker) start() error {
	l := w.l
	l.Network.Revive(w.name)
	p := &process{dead: make(chan struct{}), ended: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
	defer cancel()
	client, err := reprise.Dial(ctx, url, &reprise.Config{
		Name: w.name, Dial: l.Network.Dialer(w.name), Logger: l.Logger(w.name),
		Observer: reprise.ObserverFunc(func(e reprise.Event) { p.observe(l, w.name, e) }),
	})
	if err != nil {
		return err
	}
	c := w.built.config
	c.Concurrency = w.work.Concurrency
	c.Handler = reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error { return w.handle(ctx, p, m) })
	p.client = client
	if w.design.Once {
		once, err := l.once(w.work)
		if err != nil {
			return errors.Join(err, client.Close(ctx))
		}
		c.Middleware = []reprise.Middleware{once}
	}
	if p.worker, err = reprise.NewWorker(client, c); err != nil {
		return errors.Join(err, client.Close(ctx))
	}
	l.Go(func() {
		p.err = p.worker.Run(context.Background())
		close(p.ended)
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.process = p
	if w.down != nil {
		w.down.End()
		w.down = nil
	}
	return nil
}

func (p *process) observe(l *Life, who string, e reprise.Event) {
	select {
	case <-p.dead:
	default:
		l.Book.observe(p, e)
		l.paused(who, e)
	}
}

// outage starts a goroutine that stops the process with the function end and starts a new process after a while. If
// the worker is already down, outage does nothing.
func (w *worker) outage(why string, after time.Duration, end func(*process)) {
	if w == nil {
		return
	}
	select {
	case w.turn <- struct{}{}:
	default:
		return
	}
	d := w.l.Disturb(w.name, why)
	w.mu.Lock()
	p := w.process
	w.process, w.down = nil, d
	w.mu.Unlock()
	w.l.Count(why + "-worker")
	w.l.Go(func() {
		defer func() { <-w.turn }()
		end(p)
		w.l.Book.processEnded(p)
		time.Sleep(after)
		if err := w.start(); err != nil {
			w.l.Broken(promiseWorks, "%s cannot start: %v", w.name, err)
		}
	})
}

// stop shuts a process down gracefully, within a time limit.
func (p *process) stop(l *Life, name string, within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_ = p.worker.Shutdown(ctx)
	<-p.ended
	if p.err != nil && !errors.Is(p.err, reprise.ErrDrainTimeout) {
		l.Broken(promiseWorks, "%s: %v", name, p.err)
	}
	_ = p.client.Close(ctx)
	// If ctx expired, the client is still closing its connections in the background.
	late, stop := context.WithTimeout(context.Background(), time.Hour)
	defer stop()
	if err := p.client.Close(late); err != nil {
		l.Broken(promiseClosed, "%s: Close: %v", name, err)
	}
}

// crash stops a process as SIGKILL does. It cuts the connections, so that later actions of its goroutines have no effect.
func (p *process) crash(l *Life, name string) {
	l.Network.Kill(name) // before the cancellation, so that no action of the handlers reaches the broker
	close(p.dead)
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.worker.Shutdown(canceled)
	<-p.ended
	late, stop := context.WithTimeout(context.Background(), time.Hour)
	defer stop()
	if err := p.client.Close(late); err != nil {
		l.Broken(promiseClosed, "%s: Close: %v", name, err)
	}
}

// Heal implements Actor. It waits until the worker is up.
func (w *worker) Heal(*Life) {
	w.turn <- struct{}{}
	<-w.turn
}

// Idle implements Actor. It counts unsettled attempts, because a worker that acknowledges first has messages outside all
// queues.
func (w *worker) Idle(l *Life) string {
	w.mu.Lock()
	p := w.process
	w.mu.Unlock()
	if n := l.Book.unsettled(p); n > 0 {
		return fmt.Sprintf("%s has not settled %d attempts", w.name, n)
	}
	return ""
}

// End implements Actor.
func (w *worker) End(l *Life) {
	w.mu.Lock()
	p := w.process
	w.mu.Unlock()
	if p != nil {
		p.stop(l, w.name, time.Minute)
	}
}

// handle processes a message as its plan specifies.
func (w *worker) handle(ctx context.Context, p *process, d *reprise.Delivery) error {
	select {
	case <-p.dead:
		return errDead
	default:
	}
	m, r := w.l.Book.begin(w.name, p, w.work.Name, d)
	if m == nil {
		return nil
	}
	if w.design.Name == leasesName {
		w.l.Book.hold(ctx, m, r)
	}
	a := m.Plan.attempt(m.ID, d.Attempt)
	if a.took > 0 {
		timer := time.NewTimer(a.took)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.dead:
			w.l.Book.end(m, r, a, true)
			return errDead
		case <-ctx.Done():
			w.l.Book.end(m, r, a, true)
			return ctx.Err()
		}
	}
	w.l.Book.end(m, r, a, false)
	switch a.manner {
	case parks:
		return reprise.Park(errPlanned)
	case panics:
		panic(errPlanned)
	case exits:
		runtime.Goexit()
	case asks:
		return reprise.RetryAfter(a.asked, errPlanned)
	case pauses:
		return reprise.PauseFor(a.asked, errPlanned)
	case fails:
		return errPlanned
	}
	return nil
}
