package coverart_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/examples/coverart"
)

// countingService counts, and stands for the work of an index event.
type countingService struct {
	coverart.Archive
	puts atomic.Int32
}

func (s *countingService) Put(context.Context, coverart.Object) error { s.puts.Add(1); return nil }

func TestGraceMakesOneOfABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s countingService
		x := &coverart.Indexer{
			Catalogue: &coverart.Memory{Releases: []coverart.Release{{GID: gidA}, {GID: gidB}}},
			Archive:   &s, WebService: fakeService{}, Grace: coverart.DefaultGrace,
		}
		index := func(ctx context.Context, gid string) time.Duration {
			began := time.Now()
			if err := x.Index(ctx, message(gid)); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		var first sync.WaitGroup
		first.Go(func() {
			if took := index(t.Context(), gidA); took != coverart.DefaultGrace {
				t.Errorf("the first took %s", took)
			}
		})
		synctest.Wait()
		for range 4 {
			if took := index(t.Context(), gidA); took != 0 {
				t.Errorf("a duplicate took %s: it holds a handler", took)
			}
		}
		first.Wait()
		if n := s.puts.Load(); n != 2 {
			t.Errorf("%d objects written, want the 2 of one event", n)
		}
		index(t.Context(), gidA) // the burst is over: a new one
		index(t.Context(), gidB)
		if n := s.puts.Load(); n != 6 {
			t.Errorf("%d objects written, want 6", n)
		}
	})
}

// An interrupted first is given back to the broker; the next of its kind works.
func TestGraceInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s countingService
		x := &coverart.Indexer{
			Catalogue: &coverart.Memory{Releases: []coverart.Release{{GID: gidA}}},
			Archive:   &s, WebService: fakeService{}, Grace: coverart.DefaultGrace,
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := x.Index(ctx, message(gidA)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if err := x.Index(t.Context(), message(gidA)); err != nil || s.puts.Load() != 2 {
			t.Errorf("error %v, %d objects written", err, s.puts.Load())
		}
	})
}
