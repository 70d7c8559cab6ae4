package reprise

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Runner is a part of a program, such as a Worker, a failed.Ingest, a failed.Replayer, or another Group. When ctx is
// canceled, Run cleans up and returns. It returns an error if the program must exit. A Runner may have a method
//
//	Shutdown(ctx context.Context) error
//
// that makes Run return, and waits for Run until ctx is done. If a Runner has this method, as a Worker does, a Group
// calls it, and cancels the context of Run only after Group.Timeout.
type Runner interface {
	Run(ctx context.Context) error
}

// RunnerFunc is a function that implements Runner.
type RunnerFunc func(ctx context.Context) error

// Run calls f.
func (f RunnerFunc) Run(ctx context.Context) error { return f(ctx) }

// DefaultGroupTimeout is the default of Group.Timeout. It is longer than the DefaultDrainTimeout of a Worker.
const DefaultGroupTimeout = 45 * time.Second

// Group runs the parts of a program and stops them in reverse order. The zero value is an empty Group.
//
// First add the parts that others need: workers, then an ingest and a replayer, then servers. The Group stops the most
// recently added parts first, so that a server does not accept requests after its workers have stopped. Close the Client
// after Run has returned.
type Group struct {
	// Timeout is the maximum time for all members to stop. After that time, the contexts of their Run methods are canceled.
	// Default: DefaultGroupTimeout.
	Timeout time.Duration

	stages [][]Runner
}

// Add adds members that stop at the same time, and before all members that were added earlier. Do not call Add after Run has
// started.
func (g *Group) Add(members ...Runner) { g.stages = append(g.stages, members) }

// Run runs all members until ctx is done, a member returns an error, or all members have returned. Then it stops the
// members, waits for them, and returns their errors.
func (g *Group) Run(ctx context.Context) error {
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	stages := make([][]*member, len(g.stages))
	for i, runners := range g.stages {
		for _, r := range runners {
			m := &member{Runner: r, ended: make(chan struct{})}
			m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
			stages[i] = append(stages[i], m)
			all.Go(func() { m.run(fail) })
		}
	}
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	select {
	case <-running.Done():
	case <-done: // all members have returned without being stopped
	}

	timeout := g.Timeout
	if timeout == 0 {
		timeout = DefaultGroupTimeout
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	var errs []error
	for _, stage := range slices.Backward(stages) {
		var stopping sync.WaitGroup
		for _, m := range stage {
			stopping.Go(func() { m.stop(within) })
		}
		stopping.Wait()
		for _, m := range stage {
			errs = append(errs, m.err)
		}
	}
	return errors.Join(errs...)
}

// member is a Runner with the state of its Run call.
type member struct {
	Runner
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // valid after ended is closed
}

func (m *member) run(fail context.CancelCauseFunc) {
	defer close(m.ended)
	defer m.cancel()
	err := m.Run(m.ctx)
	if m.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // the expected result of a cancellation
	}
	if m.err = err; err != nil {
		fail(err)
	}
}

// stop stops the member and waits until its Run method returns. When ctx is done, stop cancels the context of Run.
func (m *member) stop(ctx context.Context) {
	defer context.AfterFunc(ctx, m.cancel)()
	if s, ok := m.Runner.(interface{ Shutdown(context.Context) error }); ok {
		_ = s.Shutdown(ctx) // Run returns the error
	} else {
		m.cancel()
	}
	<-m.ended
}

// Server returns a Runner for an *http.Server, for example a server for the console.
func Server(s interface {
	ListenAndServe() error
	Shutdown(ctx context.Context) error
},
) Runner {
	return &server{listen: s.ListenAndServe, shutdown: s.Shutdown}
}

type server struct {
	listen   func() error
	shutdown func(context.Context) error

	mu       sync.Mutex
	stopping bool
}

func (s *server) Run(ctx context.Context) error {
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		_ = s.Shutdown(ctx)
	})
	err := s.listen()
	if !stop() {
		<-stopped
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil
	}
	return err
}

func (s *server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	return s.shutdown(ctx)
}
