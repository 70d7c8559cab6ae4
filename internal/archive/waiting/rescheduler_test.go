package waiting

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// retryingWorker is an announced worker whose messages wait for an hour, with an archive that lists them.
type retryingWorker struct {
	*archivetest.Wire
	work string
	r    *Rescheduler
	stop func() // stops the worker
}

func newRetrying(t *testing.T, url string, s topology.Strategy, fails func(*reprise.Delivery) error) *retryingWorker {
	t.Helper()
	return newRetryingFrom(archivetest.NewWire(t, url), testkit.Name(t, "work"), s, fails)
}

// newRetryingFrom is like newRetrying, but uses an existing broker and archive, and the given work queue.
func newRetryingFrom(w *archivetest.Wire, work string, s topology.Strategy, fails func(*reprise.Delivery) error) *retryingWorker {
	t, url := w.T, w.URL
	t.Helper()
	x := &retryingWorker{Wire: w, work: work}
	w.DeleteLater(x.work, topology.FailedQueue(x.work))
	r := New(w.Client, w.Archive, Config{})
	x.r = r
	w.DeleteLater(w.Archive.RetriesTopology().Queues[0].Name)
	archivetest.Must(t, w.Client.Declare(t.Context(), w.Archive.RetriesTopology())) // otherwise the first report could be unroutable
	w.Runs(r.Run)
	announced := announce(t, url)
	worker, err := reprise.NewWorker(announced, reprise.WorkerConfig{
		Queue: x.work, Strategy: s, Policy: reprise.Policy{MaxAttempts: 5, Backoff: backoff.Fixed(time.Hour)},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error { return fails(m) }),
	})
	archivetest.Must(t, err)
	x.stop = w.Runs(worker.Run)
	testkit.Eventually(t, archivetest.Longest, func() bool { return worker.Status().Err == nil })
	return x
}

// announce connects a client that announces its workers.
func announce(t *testing.T, url string) *reprise.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), archivetest.Longest)
	defer cancel()
	c, err := reprise.Dial(ctx, url, &reprise.Config{Announce: true, Reconnect: backoff.Fixed(10 * time.Millisecond)})
	archivetest.Must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), archivetest.Longest)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// list waits until n messages of the work queue are listed.
func (x *retryingWorker) list(n int) []store.Waiting {
	x.Helper()
	var all []store.Waiting
	testkit.Eventually(x.T, archivetest.Longest, func() (err error) {
		all, _, err = x.Archive.Waiting(x.Context(), store.WaitingFilter{Queue: params.Text(x.work)}, store.Page{Size: 1000})
		if err == nil && len(all) != n {
			err = fmt.Errorf("got %d listed messages, want %d", len(all), n)
		}
		return err
	})
	return all
}

// For any route, a waiting message is listed with its wait queue.
func TestWaitingListsMessagesOfWorker(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for name, test := range map[string]struct {
			s    topology.Strategy
			wait string // suffix after the name of the work queue
		}{
			"buckets":        {topology.Strategy{}, ".wait.3078660-3848325"},
			"message TTL":    {topology.Strategy{Route: topology.MessageTTL{}}, ".wait"},
			"dead-lettering": {topology.Strategy{Route: topology.DeadLettering{Delay: time.Hour}}, ".retry"},
			"levels":         {topology.Strategy{Route: topology.Levels{}}, ""},
		} {
			t.Run(name, func(t *testing.T) {
				x := newRetrying(t, b.URL, test.s, func(*reprise.Delivery) error { return errors.New("no customer 4711") })
				for i := range 3 {
					x.Publish(x.work, nil, fmt.Sprint(i))
				}
				begun := time.Now()
				for _, w := range x.list(3) {
					wait := x.work + test.wait
					if test.wait == "" {
						wait = ""
					}
					x.DeleteLater(wait)
					if string(w.Wait) != wait || w.Attempt != 1 || w.Error != "no customer 4711" || w.MessageID == "" ||
						w.Due.Sub(w.Failed).Round(time.Minute) != time.Hour || w.Failed.Sub(begun).Abs() > archivetest.Longest {
						t.Errorf("got %+v, want wait queue %q", w, wait)
					}
				}
				reports, err := x.Archive.WaitingReports(t.Context())
				if err != nil || !reports.Reports(x.work) || reports.Missing != 0 {
					t.Errorf("WaitingReports: got %+v, %v, want queue %s and 0 missing", reports, err, x.work)
				}
			})
		}
	})
}
