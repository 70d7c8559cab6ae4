package workertest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func announced(c *reprise.Config) { c.Announce, c.Version = true, "v1.2.3" }

// watching runs a new list of workers until the test ends or stop is called.
func watching(t *testing.T, c client) (list *fleet.List, stop func()) {
	t.Helper()
	list = fleet.New(c.Client)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- list.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("list: %v", err)
		}
	}
	t.Cleanup(stop)
	return list, stop
}

// workersOf returns the workers of one queue. The list can contain workers of other tests on the same broker.
func workersOf(list *fleet.List, queue string) (some []fleet.Worker) {
	for _, w := range list.Workers() {
		if w.Queue == queue {
			some = append(some, w)
		}
	}
	return some
}

// listed waits until the list has exactly n workers of a queue, all in the given state.
func listed(t *testing.T, list *fleet.List, queue string, n int, state string) []fleet.Worker {
	t.Helper()
	var all []fleet.Worker
	testkit.Eventually(t, timeout, func() error {
		all = workersOf(list, queue)
		if len(all) != n {
			return fmt.Errorf("got %d workers, want %d", len(all), n)
		}
		for _, w := range all {
			if w.State != state {
				return fmt.Errorf("worker state: got %s, want %s: %+v", w.State, state, w)
			}
		}
		return nil
	})
	return all
}

// pausable returns a queue whose pause is removed at the end of the test.
func pausable(r *raw) (queue string, s topology.Strategy) {
	queue, s = r.names(topology.Buckets{})
	r.deleteQueues(protocol.PauseQueuePrefix + queue)
	return queue, s
}

func control(t *testing.T, c client, command protocol.Command) {
	t.Helper()
	if err := fleet.Control(t.Context(), c.Client, command); err != nil {
		t.Fatal(err)
	}
}

func TestListShowsWorkersAndDeliveries(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := pausable(r)
		c := dial(t, b.URL, announced)
		h := newHeldHandler(t)
		stop := start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Concurrency: 2, Policy: quick(2), Strategy: strategy})
		list, _ := watching(t, dial(t, b.URL))
		w := listed(t, list, queue, 1, protocol.WorkerConsuming)[0]
		if w.Host == "" || w.PID == 0 || w.Program != "v1.2.3" || w.Concurrency != 2 || w.Client != "reprise" || w.Silent || w.ID == "" || w.Running != 0 {
			t.Errorf("status: got %+v, want an idle worker with host, PID, ID and program v1.2.3", w)
		}
		r.publish("", queue, amqp.Publishing{MessageId: "one"})
		one := h.next()
		control(t, c, protocol.Command{Do: protocol.DoReport})
		testkit.Eventually(t, timeout, func() error {
			w = workersOf(list, queue)[0]
			if len(w.Handling) != 1 || w.Handling[0].MessageID != "one" || w.Handling[0].Attempt != 1 || w.Running != 1 || w.Handling[0].Since.Before(w.Started) {
				return fmt.Errorf("deliveries in the status: got %+v, want the first attempt of message one", w.Handling)
			}
			return nil
		})
		if w.Handling[0].Progress != nil {
			t.Errorf("progress: got %+v, want none", w.Handling[0].Progress)
		}
		one.result <- errScripted
		h.next().result <- nil
		r.publish("", queue, amqp.Publishing{MessageId: "two"})
		for range 2 {
			h.next().result <- errScripted
		}
		testkit.Eventually(t, timeout, func() error {
			control(t, c, protocol.Command{Do: protocol.DoReport, Queue: queue})
			w = workersOf(list, queue)[0]
			if w.Counts != (protocol.Counts{Succeeded: 1, Failed: 3, Retried: 2, Parked: 1}) || w.Took.Count() != 4 || w.Running != 0 {
				return fmt.Errorf("counts: got %+v, %+v; want 1 success, 3 failures, 2 retries and 1 parked message", w.Counts, w.Took)
			}
			return nil
		})
		if err := stop(); err != nil {
			t.Error(err)
		}
		testkit.Eventually(t, timeout, func() bool { return len(workersOf(list, queue)) == 0 })
	})
}

func TestQueuePauseStopsAllWorkers(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := pausable(r)
		h := newScript(func(*reprise.Delivery) error { return nil })
		work := reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy}
		one, two := dial(t, b.URL, announced), dial(t, b.URL, announced)
		stop := start(t, one, work)
		start(t, two, work)
		operator := dial(t, b.URL)
		list, end := watching(t, operator)
		listed(t, list, queue, 2, protocol.WorkerConsuming)

		control(t, operator, protocol.Command{Do: protocol.DoPause, Queue: queue, Pause: protocol.Pause{By: "ann", Reason: "the shop is closed"}})
		for _, w := range listed(t, list, queue, 2, protocol.WorkerPaused) {
			if p, ok := w.Pause(); !ok || p.Of != protocol.PauseOfQueue || p.By != "ann" || p.Reason != "the shop is closed" || !p.Until.IsZero() {
				t.Errorf("pauses: got %+v, want an unlimited pause of the queue by ann", w.Pauses)
			}
		}
		for range 10 {
			r.publish("", queue, amqp.Publishing{})
		}
		if n := r.consumers(queue); n != 0 {
			t.Errorf("queue has %d consumers, want 0", n)
		}

		// The operator disconnects, and a new worker replaces one of the workers.
		end()
		if err := stop(); err != nil {
			t.Error(err)
		}
		three := dial(t, b.URL, announced)
		w, err := reprise.NewWorker(three.Client, work)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		go func() { ended <- w.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		three.log.wait(t, "paused", 1)
		if n := three.log.count("consuming"); n != 0 {
			t.Errorf("worker that started during a pause has consumed")
		}
		paused, ok := errors.AsType[*reprise.PausedError](w.Status().Pause)
		if !ok || paused.By != "ann" || w.Status().Err != nil {
			t.Errorf("pause: got %v, want a pause by ann; Consuming: got %v, want nil", w.Status().Pause, w.Status().Err)
		}

		// Another operator connects.
		operator = dial(t, b.URL)
		list, _ = watching(t, operator)
		listed(t, list, queue, 2, protocol.WorkerPaused)
		if p, paused, err := fleet.QueuePause(t.Context(), operator.Client, queue); !paused || err != nil || p.By != "ann" {
			t.Errorf("pause of the queue: got %+v, %t, %v; want a pause by ann", p, paused, err)
		}
		if n := h.count(); n != 0 {
			t.Errorf("messages handled during the pause: got %d, want 0", n)
		}
		control(t, operator, protocol.Command{Do: protocol.DoResume, Queue: queue})
		h.wait(t, 10)
		listed(t, list, queue, 2, protocol.WorkerConsuming)
		if _, paused, err := fleet.QueuePause(t.Context(), operator.Client, queue); paused || err != nil {
			t.Errorf("queue is still paused: %t, %v", paused, err)
		}
	})
}

func TestQueuePauseEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := pausable(r)
		h := newScript(func(*reprise.Delivery) error { return nil })
		c := dial(t, b.URL, announced)
		start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy})
		control(t, c, protocol.Command{Do: protocol.DoPause, Queue: queue})
		c.log.wait(t, "paused", 1)
		// A new pause replaces an unlimited pause, even if another client reads the pause queue.
		reader := newRaw(t, b.URL)
		if _, err := reader.Consume(protocol.PauseQueuePrefix+queue, "", false, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		control(t, c, protocol.Command{Do: protocol.DoPause, Queue: queue, Pause: protocol.Pause{Until: time.Now().Add(2 * time.Second)}})
		r.publish("", queue, amqp.Publishing{})
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
		c.log.wait(t, "resumed", 1)
		h.wait(t, 1)
	})
}

func TestWorkerPauseStopsOneWorker(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := pausable(r)
		c := dial(t, b.URL, announced)
		h := newScript(func(*reprise.Delivery) error { return nil })
		for range 2 { // two workers on the same client
			start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy})
		}
		list, _ := watching(t, c)
		id := listed(t, list, queue, 2, protocol.WorkerConsuming)[0].ID
		paused := func() (n int) {
			for _, w := range workersOf(list, queue) {
				if p, ok := w.Pause(); ok && w.State == protocol.WorkerPaused && w.ID == id && p.Of == protocol.PauseOfWorker && p.By == "ann" {
					n++
				} else if w.State != protocol.WorkerConsuming {
					n += 10
				}
			}
			return n
		}
		pause := protocol.Command{Do: protocol.DoPause, Queue: queue, Worker: id, Pause: protocol.Pause{By: "ann"}}
		control(t, c, pause)
		testkit.Eventually(t, timeout, func() bool { return paused() == 1 && r.consumers(queue) == 1 })
		// Pausing and resuming the queue does not affect the pause of the worker.
		control(t, c, protocol.Command{Do: protocol.DoPause, Queue: queue})
		listed(t, list, queue, 2, protocol.WorkerPaused)
		control(t, c, protocol.Command{Do: protocol.DoResume, Queue: queue})
		testkit.Eventually(t, timeout, func() bool { return paused() == 1 && r.consumers(queue) == 1 })
		control(t, c, protocol.Command{Do: protocol.DoResume, Queue: queue, Worker: id})
		listed(t, list, queue, 2, protocol.WorkerConsuming)

		pause.Pause.Until = time.Now().Add(time.Second)
		control(t, c, pause)
		c.log.wait(t, "paused", 3)
		c.log.wait(t, "resumed", 3)
	})
}

func TestWorkerResumesAfterReconnectIfResumeWasMissed(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := pausable(r)
		proxy := testkit.NewProxy(t, b.URL)
		c := dial(t, proxy.URL(), announced)
		h := newScript(func(*reprise.Delivery) error { return nil })
		start(t, c, reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy})
		operator := dial(t, b.URL)
		control(t, operator, protocol.Command{Do: protocol.DoPause, Queue: queue})
		c.log.wait(t, "paused", 1)
		r.publish("", queue, amqp.Publishing{})
		proxy.Refuse()
		proxy.Cut()
		c.log.wait(t, "connection lost", 2)
		control(t, operator, protocol.Command{Do: protocol.DoResume, Queue: queue})
		if n := h.count(); n != 0 {
			t.Fatalf("messages handled without a connection: got %d, want 0", n)
		}
		proxy.Resume()
		h.wait(t, 1)
	})
}

// A worker runs even if its user has no permission to announce it. The worker skips only the actions for which the user
// has no permission.
func TestWorkerRunsWithoutPermissionToAnnounce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		more    string
		missing int // number of missing permissions
		pauses  bool
	}{
		"nothing": {"", 4, false},
		"pauses":  {`|reprise\.paused\..*`, 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
				r := newRaw(t, b.URL)
				queue, strategy := pausable(r)
				c := dial(t, userFor(t, b.URL, api, `^(`+regexp.QuoteMeta(queue)+`.*|amq\.default`+tc.more+`)$`), announced)
				h := newScript(func(m *reprise.Delivery) error {
					if m.Attempt == 1 { // if the exchange exists, the broker refuses the report of the retry
						return reprise.RetryAfter(protocol.MinReportedRetry, nil)
					}
					return nil
				})
				work := reprise.WorkerConfig{Queue: queue, Handler: h, Strategy: strategy}
				stop := start(t, c, work)
				r.publish("", queue, amqp.Publishing{})
				h.wait(t, 2)
				c.log.wait(t, "not permitted", tc.missing)
				if err := stop(); err != nil {
					t.Error(err)
				}

				control(t, dial(t, b.URL), protocol.Command{Do: protocol.DoPause, Queue: queue, Pause: protocol.Pause{By: "ann"}})
				w, err := reprise.NewWorker(c.Client, work)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
				ended := make(chan error, 1)
				go func() { ended <- w.Run(ctx) }()
				if tc.pauses {
					c.log.wait(t, "paused", 1)
				} else { // RabbitMQ 4.3 does not report the pause, but other brokers do
					testkit.Eventually(t, timeout, func() bool { return c.log.count("paused")+c.log.count("consuming") == 2 })
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if n := c.log.count("not permitted"); n != tc.missing {
					t.Errorf("got %d warnings about missing permissions, want %d", n, tc.missing)
				}
				if n := c.log.count("connection lost") + c.log.count("channel closed") + c.log.count("pause not known"); n != 0 {
					t.Errorf("got %d lost connections, closed channels and unknown pauses, want 0", n)
				}
			})
		})
	}
}

// A worker sends its status every 15 s, and also when its state changes.
func TestWorkerSendsStatusesPeriodically(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		list, stop := watching(t, dial())
		defer stop()
		synctest.Wait()
		c := dial(announced)
		var sent []time.Time
		list.Observe(func(s protocol.WorkerStatus) { sent = append(sent, s.Sent) })
		end := start(t, c, reprise.WorkerConfig{Queue: "work", Handler: newScript(func(*reprise.Delivery) error { return nil })})
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if n := len(sent); n < 5 || n > 7 { // at the start, at the first consumption, and four more
			t.Errorf("got %d statuses in a minute, want 5 to 7: %v", n, sent)
		}
		n := len(sent)
		control(t, c, protocol.Command{Do: protocol.DoPause, Queue: "work", Pause: protocol.Pause{Until: time.Now().Add(time.Hour)}})
		time.Sleep(time.Second)
		synctest.Wait()
		if len(sent) == n || workersOf(list, "work")[0].State != protocol.WorkerPaused {
			t.Errorf("statuses after the pause: got %d, want at least 1; list: got %+v, want a paused worker", len(sent)-n, workersOf(list, "work"))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if w := workersOf(list, "work")[0]; w.State != protocol.WorkerConsuming || len(w.Pauses) > 0 {
			t.Errorf("worker after the pause: got %+v, want state consuming and no pauses", w)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if all := workersOf(list, "work"); len(all) != 0 {
			t.Errorf("workers after the stop: got %+v, want none", all)
		}
	})
}

// If a worker stops without reporting it, the list removes the worker after a period of silence.
func TestListRemovesSilentWorker(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		list, stop := watching(t, dial())
		defer stop()
		synctest.Wait()
		send := func(change func(*protocol.WorkerStatus)) {
			s := protocol.WorkerStatus{ID: "id", Queue: "work", State: protocol.WorkerConsuming, Sent: time.Now(), Started: time.Now()}
			change(&s)
			body, err := s.Encode()
			if err != nil {
				t.Fatal(err)
			}
			r.publish(protocol.WorkersExchange, "work", amqp.Publishing{Body: body})
			synctest.Wait()
		}
		send(func(*protocol.WorkerStatus) {})
		time.Sleep(fleet.SilentAfter - time.Second)
		if all := list.Workers(); len(all) != 1 || all[0].Silent {
			t.Errorf("list: got %+v, want one worker", all)
		}
		time.Sleep(2 * time.Second)
		if all := list.Workers(); len(all) != 1 || !all[0].Silent {
			t.Errorf("list: got %+v, want one silent worker", all)
		}
		send(func(*protocol.WorkerStatus) {})
		if all := list.Workers(); len(all) != 1 || all[0].Silent {
			t.Errorf("list: got %+v, want one worker that is not silent", all)
		}
		time.Sleep(fleet.ForgottenAfter)
		if all := list.Workers(); len(all) != 0 {
			t.Errorf("list: got %+v, want no workers", all)
		}
		// The list ignores messages that are not statuses.
		for _, body := range []string{"", "{}", `{"v":1}`, `{"v":2,"id":"x","queue":"q"}`, strings.Repeat("x", protocol.MaxStatus+1)} {
			r.publish(protocol.WorkersExchange, "work", amqp.Publishing{Body: []byte(body)})
		}
		synctest.Wait()
		if all := list.Workers(); len(all) != 0 {
			t.Errorf("list: got %+v, want no workers", all)
		}
	})
}

// By default, a client does not announce its workers.
func TestClientDoesNotAnnounceByDefault(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
		start(t, dial(), reprise.WorkerConfig{Queue: "work", Handler: newScript(func(*reprise.Delivery) error { return nil })})
		time.Sleep(time.Minute)
		if n := r.depth(protocol.PauseQueuePrefix + "work"); n != -1 {
			t.Error("pause queue exists")
		}
		for _, exchange := range []string{protocol.WorkersExchange, protocol.RetriesExchange} {
			if err := r.ExchangeDeclarePassive(exchange, "topic", true, false, false, false, nil); err == nil {
				t.Errorf("exchange %s must not exist", exchange)
			}
			r.reopen()
		}
	})
}
