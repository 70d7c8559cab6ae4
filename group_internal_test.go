package reprise

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// journal records the events of the members of a Group.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// drainer is a Runner that drains after a Shutdown, like a Worker.
type drainer struct {
	*journal
	name  string
	takes time.Duration

	life lifecycle
}

func newDraining(j *journal, name string, takes time.Duration) *drainer {
	return &drainer{journal: j, name: name, takes: takes, life: newLifecycle()}
}

func (d *drainer) Run(ctx context.Context) error {
	ctx, end, err := d.life.start(ctx)
	if err != nil || end == nil {
		return err
	}
	defer end()
	<-ctx.Done()
	d.note("%s stops", d.name)
	select {
	case <-time.After(d.takes):
		d.note("%s drained", d.name)
	case <-d.life.force:
		d.note("%s interrupted", d.name)
		return ErrDrainTimeout
	}
	return nil
}

func (d *drainer) Shutdown(ctx context.Context) error {
	d.life.stop()
	return d.life.join(ctx)
}

func TestGroupStopsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := new(journal)
		var g Group
		g.Add(newDraining(j, "first worker", 2*time.Second), newDraining(j, "second worker", 3*time.Second))
		g.Add(RunnerFunc(func(ctx context.Context) error {
			<-ctx.Done()
			j.note("ingest stops")
			return ctx.Err()
		}))
		g.Add(newDraining(j, "server", time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := g.Run(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Minute+4*time.Second {
			t.Errorf("duration: got %v, want 1m4s (members of a stage stop at the same time)", took)
		}
		want := []string{"server stops", "server drained", "ingest stops", "workers", "first worker drained", "second worker drained"}
		slices.Sort(j.lines[3:5]) // the workers stop in any order
		if j.lines[3] != "first worker stops" || j.lines[4] != "second worker stops" {
			t.Errorf("events after the server and the ingest: got %q, want that both workers stop", j.lines[3:5])
		}
		if got := slices.Replace(slices.Clone(j.lines), 3, 5, "workers"); !slices.Equal(got, want) {
			t.Errorf("events: got %q, want %q", got, want)
		}
	})
}

func TestGroupEndsWithErrorOfMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := new(journal)
		broken := errors.New("broken")
		var g Group
		g.Add(newDraining(j, "worker", time.Second))
		g.Add(RunnerFunc(func(context.Context) error { return nil })) // a nil error does not stop the group
		g.Add(RunnerFunc(func(context.Context) error {
			time.Sleep(time.Second)
			return broken
		}))
		if err := g.Run(t.Context()); !errors.Is(err, broken) {
			t.Errorf("error of Run: got %v, want %v", err, broken)
		}
		if want := []string{"worker stops", "worker drained"}; !slices.Equal(j.lines, want) {
			t.Errorf("events: got %q, want %q", j.lines, want)
		}
	})
}

func TestGroupEndsWithItsMembers(t *testing.T) {
	var g Group
	g.Add(RunnerFunc(func(context.Context) error { return nil }))
	if err := g.Run(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestGroupLimitsShutdownToTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := new(journal)
		g := Group{Timeout: 5 * time.Second}
		g.Add(newDraining(j, "worker", time.Second))
		g.Add(newDraining(j, "slow worker", time.Hour))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if err := g.Run(ctx); !errors.Is(err, ErrDrainTimeout) {
			t.Errorf("error of Run: got %v, want ErrDrainTimeout", err)
		}
		if took := time.Since(began); took != time.Minute+5*time.Second {
			t.Errorf("duration: got %v, want 1m5s", took)
		}
	})
}

func TestGroupRunsServers(t *testing.T) {
	var g Group
	serving := make(chan struct{})
	s := &http.Server{Addr: "127.0.0.1:0"}
	s.RegisterOnShutdown(func() { close(serving) })
	g.Add(Server(s))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Run(ctx); err != nil {
		t.Error(err)
	}
	<-serving

	g = Group{}
	g.Add(Server(&http.Server{Addr: "nowhere:at all"}))
	if err := g.Run(t.Context()); err == nil {
		t.Error("Run of a server that cannot listen returned nil")
	}
}
