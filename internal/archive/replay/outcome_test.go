package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// replayEnv is a worker with a Replayer and archived messages.
type replayEnv struct {
	*archivetest.Wire
	work     string
	fails    func(*reprise.Delivery) error
	replayer *Replayer
	stop     func() // stops the worker
}

// newReplayEnv returns a replayEnv with n archived messages. Their message IDs are 0 to n-1.
func newReplayEnv(t *testing.T, url string, n int, policy reprise.Policy) *replayEnv {
	t.Helper()
	w := archivetest.NewWire(t, url)
	p := &replayEnv{Wire: w, work: w.Queue("work", nil), fails: func(*reprise.Delivery) error { return errors.New("failure") }}
	failedQueue := topology.FailedQueue(p.work)
	worker := func(policy reprise.Policy) func() {
		x, err := reprise.NewWorker(w.Client, reprise.WorkerConfig{
			Queue: p.work, Policy: policy,
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error { return p.fails(m) }),
		})
		archivetest.Must(t, err)
		return w.Runs(x.Run)
	}
	stop := worker(reprise.Policy{MaxAttempts: 1})
	for i := range n {
		w.Publish(p.work, nil, fmt.Sprint(i))
	}
	ingests(w, w.Client, failedQueue)
	testkit.Eventually(t, archivetest.Longest, func() bool { return len(w.Archived()) == n })
	stop()
	p.stop = worker(policy)
	replayer := New(w.Client, w.Archive, Config{Poll: 10 * time.Millisecond})
	p.replayer = replayer
	w.Runs(replayer.Run)
	return p
}

// replay replays all messages, and returns the replay when until returns true.
func (p *replayEnv) replay(plan failed.Plan, until func(*failed.Replay) bool) *failed.Replay {
	p.Helper()
	plan.Filter = failed.Filter{All: true}
	r, err := p.Archive.BeginReplay(p.Context(), plan, "me")
	archivetest.Must(p.T, err)
	testkit.Eventually(p.T, archivetest.Longest, func() error {
		r, err = p.Archive.Replay(p.Context(), r.ID)
		if err == nil && !until(r) {
			m, _ := p.Archive.Get(p.Context(), 1)
			err = fmt.Errorf("got replay %+v; message 1: outcome %s %s", r, m.Outcome, m.WhyUnknown)
		}
		return err
	})
	return r
}

// A replay is verifying until the outcomes of all messages are known. Each message has exactly one outcome.
func TestReplayOutcomes(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		p := newReplayEnv(t, b.URL, 6, reprise.Policy{MaxAttempts: 1})
		p.fails = func(m *reprise.Delivery) error {
			if _, asks := m.Headers[protocol.HeaderOutcome]; asks {
				t.Error("handler received the header with the report request")
			}
			if m.MessageID == "2" || m.MessageID == "4" {
				return errors.New("failure")
			}
			return nil
		}
		r := p.replay(failed.Plan{IgnoreSame: true}, func(r *failed.Replay) bool { return r.State == failed.ReplayDone && !r.Verifying })
		if r.Sent != 6 || r.Succeeded != 4 || r.Back != 2 || r.Retrying+r.Unknown+r.Pending() != 0 {
			t.Errorf("got replay %+v, want 6 sent, 4 succeeded, 2 back", r)
		}
		for outcome, want := range map[failed.Outcome]string{failed.OutcomeSucceeded: "0135", failed.OutcomeFailedAgain: "24", failed.OutcomePending: "", failed.OutcomeUnknown: ""} {
			list, _, err := p.Archive.List(t.Context(), failed.Filter{SentBy: r.ID, Outcome: outcome}, store.Page{})
			archivetest.Must(t, err)
			var ids []string
			for _, s := range list {
				ids = append(ids, s.MessageID)
				if m, err := p.Archive.Get(t.Context(), s.ID); err != nil || s.Outcome != outcome || m.Outcome != outcome {
					t.Errorf("message %s: got outcomes %q and %q, want %q (%v)", s.MessageID, s.Outcome, m.Outcome, outcome, err)
				}
			}
			slices.Sort(ids)
			if got := strings.Join(ids, ""); got != want {
				t.Errorf("%s: got %q, want %q", outcome, got, want)
			}
		}
		if n := p.Depth(p.Archive.OutcomeQueue()); n != 0 {
			t.Errorf("got %d reports in the outcome queue, want 0", n)
		}
	})
}

// A worker reports the first retry immediately, and a success when an attempt succeeds.
func TestOutcomeAfterRetries(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		p := newReplayEnv(t, b.URL, 2, reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(time.Millisecond)})
		var broken atomic.Bool
		broken.Store(true)
		p.fails = func(m *reprise.Delivery) error {
			if broken.Load() {
				return fmt.Errorf("attempt %d fails", m.Attempt)
			}
			return nil
		}
		_ = p.replay(failed.Plan{IgnoreSame: true}, func(r *failed.Replay) bool { return r.Retrying > 0 || r.Back > 0 })
		broken.Store(false)
		testkit.Eventually(t, archivetest.Longest, func() error {
			list, _, err := p.Archive.Replays(t.Context(), store.Page{})
			if r := list[0]; err == nil && (r.State != failed.ReplayDone || r.Verifying || r.Succeeded+r.Back != 2) {
				err = fmt.Errorf("got replay %+v, want done with 2 final outcomes", r)
			}
			return err
		})
	})
}

// The replay waits for the outcome of the canary, even if its retries take a long time.
func TestReplayWaitsForCanaryOutcome(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for name, tc := range map[string]struct {
			fails func(*reprise.Delivery) error
			until func(*failed.Replay) bool
			why   string
		}{
			"success": {func(*reprise.Delivery) error { return nil }, func(r *failed.Replay) bool { return r.State == failed.ReplayDone && r.Succeeded == 3 }, ""},
			"retry": {func(*reprise.Delivery) error { return errors.New("no such shard") }, func(r *failed.Replay) bool {
				return r.State == failed.ReplayStopped && r.Sent == 1
			}, "a message failed its first attempt: no such shard"},
		} {
			p := newReplayEnv(t, b.URL, 3, reprise.Policy{MaxAttempts: 5, Backoff: backoff.Fixed(time.Hour)})
			p.fails = tc.fails
			if r := p.replay(failed.Plan{Canary: time.Hour}, tc.until); r.Why != tc.why {
				t.Errorf("%s: got replay %+v, want why %q", name, r, tc.why)
			}
			p.stop()
		}
	})
}

// If the canary has no outcome in time, the replay stops after it, although workers of its queue have never reported an
// outcome: the canary proves nothing.
func TestReplayStopsIfCanaryHasNoOutcome(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		p := newReplayEnv(t, b.URL, 3, reprise.Policy{MaxAttempts: 1})
		p.stop()
		r := p.replay(failed.Plan{Canary: time.Millisecond}, func(r *failed.Replay) bool { return !r.Ended.IsZero() })
		if r.State != failed.ReplayStopped || r.Sent != 1 || r.Why != "the canary is unproven: it has no outcome after 1ms" {
			t.Errorf("got replay %+v, want stopped after 1 message with an unproven canary", r)
		}
	})
}

// Reports with a wrong key or for an unknown message have no effect.
func TestForgedReportsHaveNoEffect(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		a := archivetest.NewWire(t, b.URL).Archive
		ids, err := a.Add(t.Context(), []failed.Message{{Queue: "q", FailedQueue: "q.failed"}, {Queue: "q", FailedQueue: "q.failed"}})
		archivetest.Must(t, err)
		r, err := a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "me")
		archivetest.Must(t, err)
		secret, err := a.AskOutcomes(t.Context(), r.ID)
		archivetest.Must(t, err)
		archivetest.Must(t, a.MarkSent(t.Context(), r.ID, ids, store.Asked, ""))
		of := func(id failed.ID) string { return fmt.Sprintf("%d/%d", r.ID, id) }
		good := protocol.Outcome{Replay: of(ids[0]), Key: store.OutcomeKey(secret, r.ID, ids[0], "q"), Queue: "q", Attempt: 1, Result: protocol.OutcomeSucceeded}
		wrongKey, wrongReplay, wrongMessage, otherMessage, otherQueue, wrongText := good, good, good, good, good, good
		wrongKey.Key, wrongReplay.Replay, wrongMessage.Replay, wrongText.Replay = "guess", "99/1", of(99), "x"
		otherMessage.Replay, otherQueue.Queue = of(ids[1]), "audit" // a key is valid for one message in one queue
		emptyKey := good
		emptyKey.Key = ""
		archivetest.Must(t, a.NoteOutcomes(t.Context(), []protocol.Outcome{wrongKey, wrongReplay, wrongMessage, otherMessage, otherQueue, wrongText, emptyKey}))
		got, err := a.Replay(t.Context(), r.ID)
		archivetest.Must(t, err)
		if got.Succeeded != 0 {
			t.Errorf("forged reports: got replay %+v, want 0 succeeded", got)
		}
		late := good
		late.Result = protocol.OutcomeRetrying
		archivetest.Must(t, a.NoteOutcomes(t.Context(), []protocol.Outcome{good, good, late}))
		if got, err = a.Replay(t.Context(), r.ID); err != nil || got.Succeeded != 1 || got.Retrying != 0 || got.Pending() != 1 {
			t.Errorf("valid report: got replay %+v, %v, want 1 succeeded, 1 pending", got, err)
		}
	})
}

// A replay proceeds if it cannot declare the outcome queue, because the user lacks the permission or the queue exists
// with different arguments.
func TestReplayWithoutOutcomeQueue(t *testing.T) {
	one := func(t *testing.T, w *archivetest.Wire, c *reprise.Client, work string) {
		_, err := w.Archive.Add(t.Context(), []failed.Message{{Queue: work, FailedQueue: work + ".failed"}})
		archivetest.Must(t, err)
		r, err := w.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "me")
		archivetest.Must(t, err)
		re := New(c, w.Archive, Config{Poll: 10 * time.Millisecond})
		w.Runs(re.Run)
		testkit.Eventually(t, archivetest.Longest, func() error {
			r, err := w.Archive.Replay(t.Context(), r.ID)
			if err == nil && r.Sent != 1 {
				err = fmt.Errorf("got replay %+v, want 1 sent", r)
			}
			return err
		})
	}
	t.Run("forbidden", func(t *testing.T) {
		b, _ := testkit.EmbeddedManaged(t, broker.Config{Definitions: []byte(`{
			"vhosts": [{"name": "/"}],
			"users": [{"name": "guest", "password": "guest", "tags": "administrator"}, {"name": "app", "password": "app", "tags": ""}],
			"permissions": [
				{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"},
				{"user": "app", "vhost": "/", "configure": "^work", "write": ".*", "read": ".*"}
			]}`)})
		w := archivetest.NewWire(t, b.URL)
		_, err := w.Raw.QueueDeclare("work", true, false, false, false, nil)
		archivetest.Must(t, err)
		one(t, w, archivetest.Connect(t, strings.Replace(b.URL, "guest:guest", "app:app", 1)), "work")
	})
	t.Run("other arguments", func(t *testing.T) {
		testkit.Each(t, func(t *testing.T, b testkit.Target) {
			w := archivetest.NewWire(t, b.URL)
			_, err := w.Raw.QueueDeclare(w.Archive.OutcomeQueue(), true, false, false, false, nil) // a classic queue
			archivetest.Must(t, err)
			w.DeleteLater(w.Archive.OutcomeQueue())
			one(t, w, w.Client, w.Queue("work", nil))
		})
	})
}

// If a handler copies the headers of its message to another message, and the copy fails, the outcome of the original
// stays succeeded.
func TestSuccessRemainsIfMessageWithCopiedHeadersFails(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		p := newReplayEnv(t, b.URL, 1, reprise.Policy{MaxAttempts: 1})
		mail := p.Queue("mail", nil)
		failing, err := reprise.NewWorker(p.Client, reprise.WorkerConfig{
			Queue: mail, Policy: reprise.Policy{MaxAttempts: 1},
			Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return errors.New("no such mailbox") }),
		})
		archivetest.Must(t, err)
		p.Runs(failing.Run)
		p.DeleteLater(topology.FailedQueue(mail))
		testkit.Eventually(t, archivetest.Longest, func() error { _, err := p.Client.Depth(t.Context(), topology.FailedQueue(mail)); return err })
		ingests(p.Wire, p.Client, topology.FailedQueue(mail))
		p.fails = func(m *reprise.Delivery) error { // the handler publishes a second message with the same headers
			return p.Client.Publish(context.WithoutCancel(t.Context()), &reprise.Message{RoutingKey: mail, MessageID: "mail of " + m.MessageID, Headers: m.Headers})
		}
		r := p.replay(failed.Plan{IgnoreSame: true}, func(r *failed.Replay) bool { return r.Succeeded+r.Back > 0 })
		testkit.Eventually(t, archivetest.Longest, func() bool { return len(p.Archived()) == 2 }) // the second message
		r, err = p.Archive.Replay(t.Context(), r.ID)
		archivetest.Must(t, err)
		if r.Succeeded != 1 || r.Back != 0 {
			t.Errorf("got replay %+v, want 1 success", r)
		}
		if m, err := p.Archive.Get(t.Context(), 1); err != nil || m.Outcome != failed.OutcomeSucceeded {
			t.Errorf("message 1: got outcome %q, %v, want %q", m.Outcome, err, failed.OutcomeSucceeded)
		}
	})
}

// The canary stops the replay if its first attempt fails, even if a retry succeeds immediately.
func TestFailedCanaryStopsReplayDespiteSuccessfulRetry(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		work := w.Queue("work", nil)
		worker, err := reprise.NewWorker(w.Client, reprise.WorkerConfig{
			Queue: work, Policy: reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(time.Millisecond)},
			Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
				if m.Attempt == 1 {
					return errors.New("first attempt")
				}
				return nil
			}),
		})
		archivetest.Must(t, err)
		w.Runs(worker.Run)
		testkit.Eventually(t, archivetest.Longest, func() error { _, err := w.Client.Depth(t.Context(), topology.FailedQueue(work)); return err })
		var messages []failed.Message
		for i := range 3 {
			messages = append(messages, failed.Message{Queue: work, FailedQueue: topology.FailedQueue(work), Content: failed.Content{Properties: failed.Properties{MessageID: fmt.Sprint(i)}}})
		}
		_, err = w.Archive.Add(t.Context(), messages)
		archivetest.Must(t, err)
		r, err := w.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}, Canary: time.Hour}, "me")
		archivetest.Must(t, err)
		re := New(w.Client, w.Archive, Config{}) // checks once a second
		w.Runs(re.Run)
		testkit.Eventually(t, archivetest.Longest, func() error {
			r, err = w.Archive.Replay(t.Context(), r.ID)
			if err == nil && r.Ended.IsZero() {
				err = fmt.Errorf("got replay %+v, want an ended replay", r)
			}
			return err
		})
		if r.State != failed.ReplayStopped || r.Sent != 1 || r.Why != "a message failed its first attempt: first attempt" {
			t.Errorf("got replay %+v, want stopped after the canary", r)
		}
	})
}

// If the queue for outcomes is deleted, the Replayer declares it again.
func TestReplayerRedeclaresDeletedOutcomeQueue(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		p := newReplayEnv(t, b.URL, 1, reprise.Policy{MaxAttempts: 1})
		queue := p.Archive.OutcomeQueue()
		testkit.Eventually(t, archivetest.Longest, func() error { _, err := p.Client.Depth(t.Context(), queue); return err })
		testkit.Eventually(t, archivetest.Longest, func() error {
			q, err := p.Raw.QueueDeclarePassive(queue, true, false, false, false, nil)
			if err == nil && q.Consumers == 0 {
				err = errors.New("queue has no consumer")
			}
			return err
		})
		_, err := p.Raw.QueueDelete(queue, false, false, false)
		archivetest.Must(t, err)
		testkit.Eventually(t, archivetest.Longest, func() error { _, err := p.Client.Depth(t.Context(), queue); return err })
	})
}

// A replay to an exchange that may route to several queues does not request reports. A worker of one queue does not
// know the outcomes in the other queues: for example, a worker that only sends an alert would report a success.
func TestReplayToExchangeDoesNotRequestOutcomes(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		exchange, other := testkit.Name(t, "shop"), w.Queue("other", nil)
		archivetest.Must(t, w.Raw.ExchangeDeclare(exchange, "fanout", true, false, false, false, nil))
		t.Cleanup(func() { _ = w.Raw.ExchangeDelete(exchange, false, false) })
		archivetest.Must(t, w.Raw.QueueBind(other, "", exchange, false, nil))
		_, err := w.Archive.Add(t.Context(), []failed.Message{{Queue: "work", FailedQueue: "work.failed"}})
		archivetest.Must(t, err)
		re := New(w.Client, w.Archive, Config{})
		r, err := w.Archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}, To: &failed.Target{Exchange: exchange, RoutingKey: "x"}}, "me")
		archivetest.Must(t, err)
		r, err = re.Finish(t.Context(), r.ID)
		archivetest.Must(t, err)
		sent := w.Take(other)
		if len(sent) != 1 || sent[0].Headers[protocol.HeaderOutcome] != nil {
			t.Errorf("got deliveries %v, want one without a request", sent)
		}
		m, err := w.Archive.Get(t.Context(), 1)
		archivetest.Must(t, err)
		const reason = "no report requested: the target is not known to route to exactly one queue"
		if r.Unknown != 1 || r.Verifying || m.Outcome != failed.OutcomeUnknown || m.WhyUnknown != reason {
			t.Errorf("got replay %+v and outcome %s (%s), want unknown (%s)", r, m.Outcome, m.WhyUnknown, reason)
		}
	})
}

// ingests runs an Ingest of the queues until the test ends or the caller calls stop.
func ingests(w *archivetest.Wire, c *reprise.Client, queues ...string) (stop func()) {
	w.Helper()
	in, err := ingest.New(c, w.Archive, ingest.Config{Queues: queues})
	archivetest.Must(w.T, err)
	return w.Runs(in.Run)
}
