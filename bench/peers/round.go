package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/reprisemq/reprise/bench/internal/brokers"
	"github.com/reprisemq/reprise/bench/internal/proc"
	"github.com/reprisemq/reprise/bench/internal/report"
)

// The metrics of a round.
const (
	processRate, processWorker, processStore = "process_per_s", "process_worker_us", "process_store_us"
	retryRate, retryWorker, retryStore       = "retry_per_s", "retry_worker_us", "retry_store_us"
	waitWorker, waitStore                    = "wait_worker_bytes", "wait_store_bytes"
	lateMedian, lateTail, early              = "late_p50_ms", "late_p99_ms", "early"
	workerBack, workerAll                    = "worker_back_s", "worker_all_s"
	storeBack, storeAll                      = "store_back_s", "store_all_s"
	replayRate                               = "replay_per_s"
	lost, duplicates                         = "lost", "duplicates"
)

const (
	slow    = 5 * time.Millisecond // duration of an attempt while a process is killed
	steady  = 500.0                // messages per second while the lateness is measured
	timeout = 75 * time.Second     // of a step without progress; asynq needs 60 s to find the tasks of a killed worker
	padding = 200                  // bytes in each payload
)

// round measures one peer with a new store.
type round struct {
	peer     *peer
	steps    []string      // nil: all
	size     int           // messages of the first two steps; the others have a fifth
	wait     time.Duration // delay of the retries of the second step
	soon     time.Duration // delay of the retries of the other steps
	store    brokers.Broker
	ledger   *ledger
	settings settings
	log      io.Writer
	metrics  report.Metrics

	next       int     // id of the next message
	idleStore  float64 // memory after the first step
	idleWorker float64
}

// run runs all steps, also if one of them fails, and returns their errors.
func (r *round) run(ctx context.Context) (failed []error) {
	for _, step := range steps {
		if r.steps != nil && !slices.Contains(r.steps, step.name) {
			continue
		}
		if err := step.run(r, ctx); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", step.name, err))
		}
	}
	return failed
}

// steps are the steps of a round.
var steps = []struct {
	name string
	run  func(*round, context.Context) error
}{
	{"process", (*round).process},
	{"fail", (*round).fail},
	{"late", (*round).late},
	{"kill-worker", (*round).killWorker},
	{"kill-store", (*round).killStore},
	{"replay", (*round).replay},
}

// fewer returns the number of messages of the later steps.
func (r *round) fewer() int { return max(20, r.size/5) }

// divisor reduces the number of failures.
func (r *round) divisor() int { return max(1, r.peer.divisor) }

// begin prepares a step with a new queue. The function fails returns the number of attempts of message i that fail.
func (r *round) begin(step string, n, retries int, delay time.Duration, fails func(i int) int) []int {
	r.settings.queue = "peers-" + step
	r.settings.retries, r.settings.delay, r.settings.healed = retries, delay, false
	fmt.Fprintf(r.log, "== %s, %s: %d messages\n", r.peer.name, step, n)
	fail := make([]int, n)
	for i := range fail {
		fail[i] = fails(i)
	}
	r.ledger.begin(r.next, fail)
	r.next += n
	return fail
}

// publish publishes the messages of a step.
func (r *round) publish(ctx context.Context, fail []int, rate float64, d time.Duration) error {
	first := r.next - len(fail)
	pad := strings.Repeat("x", padding)
	return publish(ctx, r.peer, r.settings, r.log, len(fail), rate, func(i int) string {
		return fmt.Sprintf(`{"id":%d,"fail":%d,"ms":%d,"pad":%q}`, first+i, fail[i], d.Milliseconds(), pad)
	})
}

// idle waits until the worker and the store are idle, and returns their memory.
func (r *round) idle(ctx context.Context, w *worker) (ofWorker, ofStore float64, err error) {
	pids := append(w.list(), r.store.PID())
	if _, err := proc.AwaitIdle(ctx, func() (float64, error) { return cpuOf(pids...), nil }); err != nil {
		return 0, 0, err
	}
	if ofWorker, err = memoryOf(w.list()...); err == nil {
		ofStore, err = memoryOf(r.store.PID())
	}
	return ofWorker, ofStore, err
}

// measured starts a worker and waits until all messages have had their first attempt. It sets the rate of these attempts, and
// the processor time per message.
func (r *round) measured(ctx context.Context, rate, cpuWorker, cpuStore string) (*worker, error) {
	w, err := startWorker(r.peer, r.settings, r.log)
	if err != nil {
		return nil, err
	}
	n := len(r.ledger.attempts)
	var first, last int
	err = r.ledger.await(ctx, timeout, func() bool { first = r.ledger.handled; return first > 0 })
	worker, store := cpuOf(w.list()...), cpuOf(r.store.PID())
	if err == nil {
		err = r.ledger.await(ctx, timeout, func() bool { last = r.ledger.handled; return last == n })
	}
	if err != nil {
		w.stop()
		return nil, fmt.Errorf("%d of %d messages were handled: %w", last, n, err)
	}
	worker, store = cpuOf(w.list()...)-worker, cpuOf(r.store.PID())-store
	began, ended := r.ledger.span()
	r.metrics[rate] = float64(n-1) / ended.Sub(began).Seconds()
	r.metrics[cpuWorker] = 1e6 * worker / float64(last-first)
	r.metrics[cpuStore] = 1e6 * store / float64(last-first)
	return w, nil
}

// begun publishes messages and starts a worker.
func (r *round) begun(ctx context.Context, fail []int, d time.Duration) (*worker, error) {
	if err := r.publish(ctx, fail, 0, d); err != nil {
		return nil, err
	}
	return startWorker(r.peer, r.settings, r.log)
}

// process handles messages that do not fail.
func (r *round) process(ctx context.Context) error {
	fail := r.begin("process", r.size, 1, r.wait, func(int) int { return 0 })
	if err := r.publish(ctx, fail, 0, 0); err != nil {
		return err
	}
	busy, err := proc.Busy()
	if err != nil {
		return err
	}
	own, began := cpuOf(syscall.Getpid(), r.store.PID()), time.Now()
	w, err := r.measured(ctx, processRate, processWorker, processStore)
	if err != nil {
		return err
	}
	defer w.stop()
	busyNow, err := proc.Busy()
	if err != nil {
		return err
	}
	r.metrics[report.Others] = max(0, busyNow-busy-(cpuOf(syscall.Getpid(), r.store.PID())-own)) / time.Since(began).Seconds()
	r.idleWorker, r.idleStore, err = r.idle(ctx, w)
	r.settle()
	return err
}

// fail lets each message fail once. All of them wait at the same time, unless the handlers of the peer wait.
func (r *round) fail(ctx context.Context) error {
	if r.divisor() > 1 {
		return nil
	}
	fail := r.begin("fail", r.size, 1, r.wait, func(int) int { return 1 })
	if err := r.publish(ctx, fail, 0, 0); err != nil {
		return err
	}
	w, err := r.measured(ctx, retryRate, retryWorker, retryStore)
	if err != nil {
		return err
	}
	defer w.stop()
	ofWorker, ofStore, err := r.idle(ctx, w)
	if err != nil {
		return err
	}
	if r.ledger.waiting() == len(fail) {
		r.metrics[waitWorker] = (ofWorker - r.idleWorker) / float64(len(fail))
		r.metrics[waitStore] = (ofStore - r.idleStore) / float64(len(fail))
	}
	return r.finish(ctx)
}

// late publishes at a steady rate. Three of ten messages fail once, and one fails three times.
func (r *round) late(ctx context.Context) error {
	fail := r.begin("late", r.fewer(), 3, r.soon, func(i int) int {
		if i/10%r.divisor() > 0 {
			return 0
		}
		return []int{0, 1, 0, 1, 0, 3, 0, 1, 0, 0}[i%10]
	})
	w, err := startWorker(r.peer, r.settings, r.log)
	if err != nil {
		return err
	}
	defer w.stop()
	if err := r.publish(ctx, fail, steady, 0); err != nil {
		return err
	}
	if err := r.finish(ctx); err != nil {
		return err
	}
	all := r.ledger.lateness(r.soon)
	if len(all) == 0 {
		return errors.New("the worker retried no message")
	}
	r.metrics[lateMedian] = 1e3 * all[len(all)/2].Seconds()
	r.metrics[lateTail] = 1e3 * all[len(all)*99/100].Seconds()
	r.metrics[early] = max(0, -1e3*all[0].Seconds())
	return nil
}

func (r *round) killWorker(ctx context.Context) error {
	return r.kill(ctx, "kill-worker", workerBack, workerAll, func(w *worker) error {
		w.signal(syscall.SIGKILL)
		return nil
	})
}

func (r *round) killStore(ctx context.Context) error {
	return r.kill(ctx, "kill-store", storeBack, storeAll, func(*worker) error {
		if err := r.store.Kill(); err != nil {
			return err
		}
		return r.store.Start(ctx)
	})
}

// kill kills a process after a quarter of the messages. A fifth of the messages fail once.
func (r *round) kill(ctx context.Context, step, back, all string, kill func(*worker) error) error {
	// Messages of an earlier worker create the wait queue: RabbitMQ loses the messages of a quorum queue if it is killed within a second
	// of its declaration.
	fail := r.begin(step, r.settings.concurrency, 1, r.soon, func(int) int { return 1 })
	w, err := r.begun(ctx, fail, 0)
	if err != nil {
		return err
	}
	err = r.finish(ctx)
	w.stop()
	if err != nil {
		return err
	}
	fail = r.begin(step, r.fewer(), 1, r.soon, func(i int) int {
		if i%(5*r.divisor()) == 0 {
			return 1
		}
		return 0
	})
	if w, err = r.begun(ctx, fail, slow); err != nil {
		return err
	}
	defer w.stop()
	if err := r.ledger.await(ctx, timeout, func() bool { return r.ledger.handled >= len(fail)/4 }); err != nil {
		return fmt.Errorf("before the kill: %w", err)
	}
	killed := time.Now()
	if err := kill(w); err != nil {
		return err
	}
	r.ledger.mu.Lock()
	r.ledger.since = time.Now() // a worker may continue with messages that it has already received
	r.ledger.mu.Unlock()
	if err := r.finish(ctx); err != nil {
		return err
	}
	_, last := r.ledger.span()
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	if !r.ledger.next.IsZero() {
		r.metrics[back] = r.ledger.next.Sub(killed).Seconds()
	}
	if r.ledger.done == len(fail) {
		r.metrics[all] = last.Sub(killed).Seconds()
	}
	return nil
}

// replay lets all messages fail until they are parked, and replays them with a handler that succeeds.
func (r *round) replay(ctx context.Context) error {
	if r.peer.replay == nil {
		return nil
	}
	const retries = 1
	fail := r.begin("replay", r.fewer()/r.divisor(), retries, r.soon, func(int) int { return retries }) // the last attempt before they are parked
	always := make([]int, len(fail))
	for i := range always {
		always[i] = -1
	}
	w, err := r.begun(ctx, always, 0)
	if err != nil {
		return err
	}
	if err := r.finish(ctx); err != nil {
		w.stop()
		return err
	}
	w.stop() // a graceful shutdown parks the last messages
	r.ledger.begin(r.next-len(fail), make([]int, len(fail)))
	r.settings.healed = true
	if w, err = startWorker(r.peer, r.settings, r.log); err != nil {
		return err
	}
	defer w.stop()
	if _, _, err := r.idle(ctx, w); err != nil {
		return err
	}
	began := time.Now()
	cmd := r.peer.replay(r.peer, r.settings, r.log)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	err = r.finish(ctx)
	_, last := r.ledger.span()
	if failed := <-ended; failed != nil {
		return fmt.Errorf("replay: %w", failed)
	}
	r.metrics[replayRate] = float64(r.ledger.done) / last.Sub(began).Seconds()
	return err
}

// finish waits until all messages are processed or parked, and counts lost messages and duplicates. A message is lost if it is not
// processed after the longest wait.
func (r *round) finish(ctx context.Context) error {
	n := len(r.ledger.attempts)
	limit := r.settings.delay + cmp.Or(r.peer.timeout, timeout)
	err := r.ledger.await(ctx, limit, func() bool { return r.ledger.done == n })
	if errors.Is(err, errTimeout) {
		err = nil
	}
	r.settle()
	return err
}

// settle adds the results of a step.
func (r *round) settle() {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	r.metrics[lost] += float64(len(r.ledger.attempts) - r.ledger.done)
	r.metrics[duplicates] += float64(r.ledger.duplicates)
	fmt.Fprintf(r.log, "done %d of %d, %d duplicates, %d attempts\n", r.ledger.done, len(r.ledger.attempts), r.ledger.duplicates, r.ledger.reports)
}
