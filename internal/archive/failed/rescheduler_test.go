package failed

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// retryingWorker is an announced worker whose messages wait for an hour, with an archive that lists them.
type retryingWorker struct {
	*wire
	work string
	r    *Rescheduler
	stop func() // stops the worker
}

func newRetrying(t *testing.T, url string, s topology.Strategy, fails func(*reprise.Delivery) error) *retryingWorker {
	t.Helper()
	return newRetryingFrom(newWire(t, url), testkit.Name(t, "work"), s, fails)
}

// newRetryingFrom is like newRetrying, but uses an existing broker and archive, and the given work queue.
func newRetryingFrom(w *wire, work string, s topology.Strategy, fails func(*reprise.Delivery) error) *retryingWorker {
	t, url := w.T, w.url
	t.Helper()
	x := &retryingWorker{wire: w, work: work}
	w.deleteLater(x.work, topology.FailedQueue(x.work))
	r, err := NewRescheduler(w.client, w.archive, ReschedulerConfig{})
	must(t, err)
	x.r = r
	w.deleteLater(w.archive.retriesTopology().Queues[0].Name)
	must(t, w.client.Declare(t.Context(), w.archive.retriesTopology())) // otherwise the first report could be unroutable
	w.runs(r.Run)
	announced := announce(t, url)
	worker, err := reprise.NewWorker(announced, reprise.WorkerConfig{
		Queue: x.work, Strategy: s, Policy: reprise.Policy{MaxAttempts: 5, Backoff: backoff.Fixed(time.Hour)},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error { return fails(m) }),
	})
	must(t, err)
	x.stop = w.runs(worker.Run)
	testkit.Eventually(t, longest, func() bool { return worker.Status().Err == nil })
	return x
}

// announce connects a client that announces its workers.
func announce(t *testing.T, url string) *reprise.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	c, err := reprise.Dial(ctx, url, &reprise.Config{Announce: true, Reconnect: backoff.Fixed(10 * time.Millisecond)})
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), longest)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// list waits until n messages of the work queue are listed.
func (x *retryingWorker) list(n int) []Waiting {
	x.Helper()
	var all []Waiting
	testkit.Eventually(x.T, longest, func() (err error) {
		all, _, err = x.archive.Waiting(x.Context(), WaitingFilter{Queue: x.work}, Page{Size: 1000})
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
					x.publish(x.work, nil, fmt.Sprint(i))
				}
				begun := time.Now()
				for _, w := range x.list(3) {
					wait := x.work + test.wait
					if test.wait == "" {
						wait = ""
					}
					x.deleteLater(wait)
					if w.Wait != wait || w.Attempt != 1 || w.Error != "no customer 4711" || w.MessageID == "" ||
						w.Due.Sub(w.Failed).Round(time.Minute) != time.Hour || w.Failed.Sub(begun).Abs() > longest {
						t.Errorf("got %+v, want wait queue %q", w, wait)
					}
				}
				reports, err := x.archive.WaitingReports(t.Context())
				if err != nil || !reports.Reports(x.work) || reports.Missing != 0 {
					t.Errorf("WaitingReports: got %+v, %v, want queue %s and 0 missing", reports, err, x.work)
				}
			})
		}
	})
}
