package workretry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/topology"
)

// A trial processes all jobs in one way, one job after another.
type trial struct {
	broker   Broker
	way      way
	delay    time.Duration
	topology topology.Topology

	client  *reprise.Client // publishes the jobs
	look    *look
	program *program       // the current program
	leaving sync.WaitGroup // waits for programs that are stopping

	mu   sync.Mutex
	jobs map[int]*state
}

// state contains the outcome of a job and the failure to inject.
type state struct {
	Outcome
	fault *fault // nil: no failure
	set   bool
}

// run declares the queues, processes the jobs, and deletes the queues.
func (t *trial) run(ctx context.Context, jobs []Job) (_ []Outcome, err error) {
	t.jobs = make(map[int]*state)
	end := func(f func() error) { err = errors.Join(err, f()) }
	if t.topology, err = t.way.topology(t.delay); err != nil {
		return nil, err
	}
	t.client, err = reprise.Dial(ctx, t.broker.URL, &reprise.Config{Dial: t.broker.Dial, Logger: t.broker.Logger})
	if err != nil {
		return nil, err
	}
	defer end(func() error { return t.client.Close(context.WithoutCancel(ctx)) })
	if t.look, err = newLook(ctx, t.broker); err != nil {
		return nil, err
	}
	defer end(t.look.close)
	defer end(func() error { return t.look.remove(t.topology) })
	if err := t.client.Declare(ctx, t.topology); err != nil {
		return nil, err
	}
	collected, err := t.collect(ctx)
	if err != nil {
		return nil, err
	}
	defer end(collected)
	if t.program, err = t.begin(ctx); err != nil {
		return nil, err
	}
	defer t.leaving.Wait()
	defer end(func() error { return t.program.end() })
	return t.all(ctx, jobs)
}

// all processes the jobs and returns their outcomes. It fails if an outcome changes
// after do has returned.
func (t *trial) all(ctx context.Context, jobs []Job) ([]Outcome, error) {
	for _, j := range jobs {
		if err := t.do(ctx, j); err != nil {
			return nil, fmt.Errorf("%s: job %d (%s): %w", t.way.name, j.ID, j.breaks, err)
		}
	}
	var outcomes []Outcome
	for _, j := range jobs {
		if err := t.missing(j.ID); err != nil { // a late duplicate has changed the outcome
			return nil, fmt.Errorf("%s: job %d (%s) after all jobs: %w", t.way.name, j.ID, j.breaks, err)
		}
		outcomes = append(outcomes, t.outcome(j.ID))
	}
	return outcomes, nil
}

func (t *trial) outcome(id int) Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.jobs[id].Outcome
}

func (t *trial) begin(ctx context.Context) (*program, error) {
	return begin(ctx, t.broker, reprise.WorkerConfig{
		Queue:    t.way.queue,
		Strategy: t.way.strategy,
		Order:    t.way.order,
		Policy:   reprise.Policy{MaxAttempts: maxAttempts, Backoff: backoff.Fixed(t.delay)},
	}, t.handle)
}

// handle runs an attempt. If the attempt fails and the job has a fault, handle arms this fault, which then interrupts
// the settlement of the message.
func (t *trial) handle(w *wire, m *reprise.Delivery) error {
	j := jobOf(m.Body)
	t.mu.Lock()
	defer t.mu.Unlock()
	s, found := t.jobs[j.ID]
	if !found {
		return reprise.Park(errors.New("job not found in the comparison"))
	}
	s.Attempts++
	err := j.attempt(m.Attempt)
	if err == nil {
		s.Done++
		return nil
	}
	when := 1
	if s.parking {
		when = maxAttempts
	}
	if s.fault != nil && !s.set && m.Attempt == when {
		s.set = true
		w.set(s.fault)
	}
	return err
}

// collect counts the parked messages until end is called.
func (t *trial) collect(ctx context.Context) (end func() error, err error) {
	l, err := newLook(ctx, t.broker)
	if err != nil {
		return nil, err
	}
	parked, err := l.ch.Consume(topology.FailedQueue(t.way.queue), "", true, false, false, false, nil)
	if err != nil {
		return nil, errors.Join(err, l.close())
	}
	var collecting sync.WaitGroup
	collecting.Go(func() { // ends when the connection is closed
		for d := range parked {
			t.mu.Lock()
			if s, found := t.jobs[jobOf(d.Body).ID]; found {
				s.Parked++
			}
			t.mu.Unlock()
		}
	})
	return func() error { defer collecting.Wait(); return l.close() }, nil
}

// do publishes a job and waits until its outcome is known and the queues are empty.
func (t *trial) do(ctx context.Context, j Job) error {
	t.mu.Lock()
	t.jobs[j.ID] = &state{Outcome: Outcome{Job: j, want: t.way.effect(j)}, fault: t.way.faultFor(j)}
	t.mu.Unlock()
	err := t.client.Publish(ctx, &reprise.Message{
		Exchange: t.way.exchange, RoutingKey: t.way.key,
		MessageID: fmt.Sprintf("job-%d", j.ID), ContentType: "application/json", Body: j.body(),
	})
	if err != nil {
		return err
	}
	return until(ctx, max(5*time.Millisecond, t.delay/20), 30*time.Second+10*maxAttempts*t.delay, func() error {
		if err := t.replace(ctx); err != nil {
			return err
		}
		return errors.Join(t.missing(j.ID), t.program.idle(), t.look.atRest(t.topology, t.way.queue))
	})
}

// replace starts another program if the wire of the current program is dead.
func (t *trial) replace(ctx context.Context) error {
	if !t.program.dead() {
		return nil
	}
	next, err := t.begin(ctx)
	if err != nil {
		return err
	}
	died := t.program
	t.program = next
	t.leaving.Go(func() { _ = died.end() })
	return nil
}

// missing returns an error if the fault of a job was not injected, or if the job does not have the expected outcome.
func (t *trial) missing(id int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.jobs[id]
	if s.fault != nil {
		select {
		case <-s.fault.injected:
		default:
			return errors.New("failure was not injected")
		}
	}
	if got := s.Done + s.Parked; got != s.want.ends() {
		return fmt.Errorf("total of %d processed and %d parked copies must be %[4]d: got %[3]d", s.Done, s.Parked, got, s.want.ends())
	}
	return nil
}
