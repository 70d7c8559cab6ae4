package coverart_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/examples/coverart/coverart"
	"github.com/reprisemq/reprise/internal/preset"
)

// countingService counts the calls of Put. A handler calls Put twice for each index event.
type countingService struct {
	coverart.Archive
	puts atomic.Int32
}

func (s *countingService) Put(context.Context, coverart.Object) error { s.puts.Add(1); return nil }

// A worker with the configuration in the package comment handles only one of several equal events, after the grace
// period.
func TestWorkerCoalescesEqualEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := broker.New(broker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Shutdown(context.Background())
		client, err := reprise.Dial(t.Context(), "amqp://guest:guest@memory", &reprise.Config{Dial: b.DialContext})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.Background())
		var s countingService
		x := &coverart.Indexer{
			Catalogue: &coverart.Memory{Releases: []coverart.Release{{GID: gidA}, {GID: gidB}}},
			Archive:   &s, WebService: fakeService{},
		}
		w, err := reprise.NewWorker(client, reprise.WorkerConfig{
			Queue: preset.CoverArtIndexQueue, Strategy: coverart.Design{}.Strategy(),
			Handler: reprise.HandlerFunc(x.Index), Debounce: &reprise.Debounce{Window: coverart.Grace, Key: reprise.ContentKey},
		})
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- w.Run(t.Context()) }()
		synctest.Wait()
		for _, gid := range []string{gidA, gidA, gidB, gidA, gidA} {
			m := &reprise.Message{Exchange: preset.CoverArtExchange, RoutingKey: "index", Body: []byte(gid)}
			if err := client.Publish(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(coverart.Grace - time.Millisecond)
		if n := s.puts.Load(); n != 0 {
			t.Errorf("objects written during the grace period: got %d, want 0", n)
		}
		time.Sleep(time.Second)
		if n := s.puts.Load(); n != 4 {
			t.Errorf("objects written: got %d, want 4 (2 for each of 2 events)", n)
		}
		if err := w.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ran; err != nil {
			t.Error(err)
		}
		for _, q := range b.Queues() {
			if q.Ready+q.Unacked > 0 {
				t.Errorf("queue %s has %d messages, want 0", q.Name, q.Ready+q.Unacked)
			}
		}
	})
}
