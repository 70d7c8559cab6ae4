package replay

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
	"github.com/reprisemq/reprise/topology"
)

// reportingReplay is a replay that requests reports for messages of the queue q.
type reportingReplay struct {
	*testing.T
	archive *store.Archive
	id      failed.ReplayID
	ids     []failed.ID
	secret  string
}

// newReported returns a replay of n messages with the message IDs 0 to n-1.
func newReported(t *testing.T, a *store.Archive, n int) *reportingReplay {
	t.Helper()
	var messages []failed.Message
	for i := range n {
		messages = append(messages, failed.Message{Queue: "q", FailedQueue: "q.failed", Error: "x", Content: failed.Content{Properties: failed.Properties{MessageID: fmt.Sprint(i)}}})
	}
	ids, err := a.Add(t.Context(), messages)
	archivetest.Must(t, err)
	r, err := a.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "me")
	archivetest.Must(t, err)
	secret, err := a.AskOutcomes(t.Context(), r.ID)
	archivetest.Must(t, err)
	return &reportingReplay{t, a, r.ID, ids, secret}
}

// archiveAt returns an empty archive that uses the given clock.
func archiveAt(t *testing.T, clock func() time.Time) *store.Archive {
	t.Helper()
	a, err := store.Open(t.Context(), emptyDatabase(t), store.Config{Dialect: store.SQLite, Clock: clock})
	archivetest.Must(t, err)
	return a
}

func emptyDatabase(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "failed.db")+"?_pragma=busy_timeout(30000)&_pragma=synchronous(OFF)")
	archivetest.Must(t, err)
	t.Cleanup(func() { archivetest.Must(t, db.Close()) })
	return db
}

// request returns the request for an outcome report that message i would contain if the replay had sent it to queue.
func (r *reportingReplay) request(i int, queue string) protocol.OutcomeRequest {
	return protocol.OutcomeRequest{
		To: r.archive.OutcomeQueue(), Replay: fmt.Sprintf("%d/%d", r.id, r.ids[i]), Key: store.OutcomeKey(r.secret, r.id, r.ids[i], queue), Queue: queue, MessageID: fmt.Sprint(i),
	}
}

// report simulates the report of a worker of the queue q for message i.
func (r *reportingReplay) report(i int, result string) {
	r.Helper()
	q := r.request(i, "q")
	archivetest.Must(r.T, r.archive.NoteOutcomes(r.Context(), []protocol.Outcome{{Replay: q.Replay, Key: q.Key, Queue: q.Queue, Attempt: 1, Result: result}}))
}

// sent records messages as sent by the replay.
func (r *reportingReplay) sent(messages ...int) {
	r.Helper()
	var ids []failed.ID
	for _, i := range messages {
		ids = append(ids, r.ids[i])
	}
	archivetest.Must(r.T, r.archive.MarkSent(r.Context(), r.id, ids, store.Asked, ""))
}

func (r *reportingReplay) end(s failed.ReplayState) {
	r.Helper()
	archivetest.Must(r.T, r.archive.EndReplay(r.Context(), r.id, s, "", "me"))
}

// arrives archives a message as failed, with or without a request.
func (r *reportingReplay) arrives(m failed.Message, request *protocol.OutcomeRequest) failed.ID {
	r.Helper()
	if request != nil {
		m.Headers[protocol.HeaderOutcome] = request.Table()
	}
	ids, err := r.archive.AddDelivered(r.Context(), []failed.Arrived{{Message: m, Session: "session"}})
	archivetest.Must(r.T, err)
	return ids[0]
}

// want compares the replay and its messages with the expected outcomes, in the order of message IDs.
func (r *reportingReplay) want(outcomes ...failed.Outcome) {
	r.Helper()
	replay, err := r.archive.Replay(r.Context(), r.id)
	archivetest.Must(r.T, err)
	counts := map[failed.Outcome]int64{}
	for i, want := range outcomes {
		m, err := r.archive.Get(r.Context(), r.ids[i])
		archivetest.Must(r.T, err)
		if m.Outcome != want {
			r.Errorf("message %d: got outcome %q, want %q", i, m.Outcome, want)
		}
		counts[want]++
	}
	for outcome, n := range map[failed.Outcome]int64{
		failed.OutcomePending: replay.Pending(), failed.OutcomeRetrying: replay.Retrying, failed.OutcomeSucceeded: replay.Succeeded, failed.OutcomeFailedAgain: replay.Back, failed.OutcomeUnknown: replay.Unknown,
	} {
		list, _, err := r.archive.List(r.Context(), failed.Filter{SentBy: r.id, Outcome: outcome}, store.Page{})
		archivetest.Must(r.T, err)
		if n != counts[outcome] || int64(len(list)) != n {
			r.Errorf("%s: got %d in the replay and %d in the list, want %d", outcome, n, len(list), counts[outcome])
		}
	}
}

// A process sends messages and is killed before it records them as sent. If a report proves that a message was sent, no
// other process sends the message, and the message does not return to state failed when the replay ends.
func TestReportProvesThatMessageWasSent(t *testing.T) {
	r := newReported(t, archiveAt(t, time.Now), 4)
	r.sent(3)
	r.report(0, protocol.OutcomeSucceeded)
	r.report(1, protocol.OutcomeRetrying)
	next, err := r.archive.UnsentOf(t.Context(), r.id, 10)
	archivetest.Must(t, err)
	if len(next) != 1 || next[0].ID != r.ids[2] {
		t.Errorf("got unsent messages %v, want only message %d", next, r.ids[2])
	}
	r.end(failed.ReplayCancelled)
	r.report(1, protocol.OutcomeSucceeded)
	r.want(failed.OutcomeSucceeded, failed.OutcomeSucceeded, "", failed.OutcomePending)
	for i, want := range []failed.State{failed.Replayed, failed.Replayed, failed.Failed, failed.Replayed} {
		if m, err := r.archive.Get(t.Context(), r.ids[i]); err != nil || m.State != want {
			t.Errorf("message %d: got state %s, %v, want %s", i, m.State, err, want)
		}
	}
	r.report(2, protocol.OutcomeSucceeded) // after the replay ended
	r.want(failed.OutcomeSucceeded, failed.OutcomeSucceeded, failed.OutcomeSucceeded, failed.OutcomePending)
	r.sent(0, 1, 2, 3)
	r.want(failed.OutcomeSucceeded, failed.OutcomeSucceeded, failed.OutcomeSucceeded, failed.OutcomePending)
}

// A process is killed after it has sent a message and before it records the send. When the worker's report arrives, the
// message belongs to a second replay, which then does not send it again.
func TestReportPreventsSecondSend(t *testing.T) {
	for _, result := range []string{protocol.OutcomeSucceeded, protocol.OutcomeRetrying} {
		r := newReported(t, archiveAt(t, time.Now), 2)
		r.end(failed.ReplayStopped)
		next, err := r.archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "me")
		archivetest.Must(t, err)
		r.report(0, result)
		unsent, err := r.archive.UnsentOf(t.Context(), next.ID, 10)
		archivetest.Must(t, err)
		if len(unsent) != 1 || unsent[0].ID != r.ids[1] {
			t.Errorf("%s: got %d unsent messages, want only the other message", result, len(unsent))
		}
		m, err := r.archive.Get(t.Context(), r.ids[0])
		archivetest.Must(t, err)
		if m.State != failed.Replayed || m.ReplayedBy != r.id {
			t.Errorf("%s: message is %s by replay %d, want replayed by %d", result, m.State, m.ReplayedBy, r.id)
		}
		next, err = r.archive.Replay(t.Context(), next.ID)
		archivetest.Must(t, err)
		if next.Refused != 1 || next.Sent != 0 || !strings.Contains(next.Why, "replay 1 has sent it") {
			t.Errorf("%s: got replay %+v, want 1 refused, because replay 1 has sent it", result, next)
		}
	}
}

// A message has the outcome "failed again" only if the archive can prove that the replay has sent it.
func TestFailedAgainRequiresSentMessage(t *testing.T) {
	r := newReported(t, archiveAt(t, time.Now), 3)
	r.sent(0, 1, 2)
	r.report(0, protocol.OutcomeSucceeded)
	message := func(i int) failed.Message {
		return failed.Message{Queue: "q", FailedQueue: "q.failed", Content: failed.Content{
			Headers: topology.Table{topology.HeaderReplay: fmt.Sprintf("%d/%d", r.id, r.ids[i])}, Properties: failed.Properties{MessageID: fmt.Sprint(i)},
		}}
	}
	elsewhere, copied, foreign := message(0), message(0), message(0)
	elsewhere.Queue, elsewhere.FailedQueue = "stock", "stock.failed"
	copied.Properties.MessageID = "mail"
	own, other := r.request(0, "q"), r.request(1, "q")
	stranger := protocol.OutcomeRequest{To: protocol.OutcomeQueuePrefix + "ANOTHER", Replay: own.Replay, Key: "another", Queue: "q", MessageID: "0"}
	r.arrives(elsewhere, &own)
	r.arrives(copied, &own)
	r.arrives(message(0), &other)
	r.arrives(foreign, &stranger)
	copied.Headers = topology.Table{topology.HeaderReplay: own.Replay}
	r.arrives(copied, nil)
	r.want(failed.OutcomeSucceeded, failed.OutcomePending, failed.OutcomePending)
	id := r.arrives(message(1), &other)
	r.arrives(message(2), nil)             // a program has removed the request
	r.report(1, protocol.OutcomeSucceeded) // of another copy of the message
	r.report(1, protocol.OutcomeRetrying)
	r.want(failed.OutcomeSucceeded, failed.OutcomeFailedAgain, failed.OutcomeFailedAgain)
	m, err := r.archive.Get(t.Context(), id)
	archivetest.Must(t, err)
	if m.Back != r.id || m.BackOf != r.ids[1] || m.Headers[protocol.HeaderOutcome] != nil {
		t.Errorf("got replay %d, message %d, headers %v, want replay %d, message %d, no outcome request", m.Back, m.BackOf, m.Headers, r.id, r.ids[1])
	}
}

// A message fails again before the replay has recorded it as sent.
func TestFailedAgainBeforeSendIsRecorded(t *testing.T) {
	r := newReported(t, archiveAt(t, time.Now), 3)
	message := func(i int) failed.Message {
		return failed.Message{Queue: "q", FailedQueue: "q.failed", Content: failed.Content{
			Headers: topology.Table{topology.HeaderReplay: fmt.Sprintf("%d/%d", r.id, r.ids[i])}, Properties: failed.Properties{MessageID: fmt.Sprint(i)},
		}}
	}
	request := r.request(0, "q")
	r.arrives(message(0), &request)
	r.arrives(message(1), nil) // any publisher could have published this message, so it does not prove that message 1 was sent
	next, err := r.archive.UnsentOf(t.Context(), r.id, 10)
	archivetest.Must(t, err)
	if len(next) != 2 || next[0].ID != r.ids[1] {
		t.Errorf("got unsent messages %v, want 2, the first %d", next, r.ids[1])
	}
	r.want(failed.OutcomeFailedAgain, "", "")
	r.sent(0, 1)
	r.end(failed.ReplayStopped)
	r.want(failed.OutcomeFailedAgain, failed.OutcomeFailedAgain, "")
}

// Messages do not stay in retrying or pending indefinitely: after VerifyTime their outcome is unknown.
func TestOutcomesAreUnknownAfterVerifyTime(t *testing.T) {
	now := time.Now()
	r := newReported(t, archiveAt(t, func() time.Time { return now }), 4)
	r.sent(0, 1, 2)
	archivetest.Must(t, r.archive.MarkSent(t.Context(), r.id, r.ids[3:], store.NoRoom, ""))
	r.report(0, protocol.OutcomeRetrying)
	r.report(1, protocol.OutcomeSucceeded)
	r.end(failed.ReplayDone)
	r.want(failed.OutcomeRetrying, failed.OutcomeSucceeded, failed.OutcomePending, failed.OutcomeUnknown)
	now = now.Add(failed.VerifyTime)
	r.want(failed.OutcomeUnknown, failed.OutcomeSucceeded, failed.OutcomeUnknown, failed.OutcomeUnknown)
	for i, want := range map[int]store.UnaskedReason{0: store.LateOutcome, 2: store.LateOutcome, 3: store.NoRoom} {
		list, _, err := r.archive.List(t.Context(), failed.Filter{IDs: r.ids[i : i+1]}, store.Page{})
		archivetest.Must(t, err)
		if got := list[0].WhyUnknown; got != store.UnknownReasons[want] {
			t.Errorf("message %d: got %q, want %q", i, got, store.UnknownReasons[want])
		}
	}
	r.report(0, protocol.OutcomeSucceeded)
	r.want(failed.OutcomeSucceeded, failed.OutcomeSucceeded, failed.OutcomeUnknown, failed.OutcomeUnknown)
}

// A report that no database accepts does not prevent other reports from being stored.
func TestForgedReportDoesNotBlockOthers(t *testing.T) {
	for name, forge := range map[string]func(amqp.Table){
		"NUL in the key":      func(h amqp.Table) { h["key"] = "\x00" },
		"key is not UTF-8":    func(h amqp.Table) { h["key"] = "\xff" },
		"NUL in the queue":    func(h amqp.Table) { h["queue"] = "\x00" },
		"error is not UTF-8":  func(h amqp.Table) { h["result"], h["error"] = "retrying", "\x00\xff" },
		"number is too large": func(h amqp.Table) { h["replay"] = "99999999999999999999/1" },
	} {
		t.Run(name, func(t *testing.T) {
			db, err := sql.Open("pgx", pgtest.Schema(t))
			archivetest.Must(t, err)
			t.Cleanup(func() { archivetest.Must(t, db.Close()) })
			a, err := store.Open(t.Context(), db, store.Config{Dialect: store.PostgreSQL})
			archivetest.Must(t, err)
			w := archivetest.NewWire(t, testkit.Embedded(t).URL)
			w.Archive = a
			r := newReported(t, a, 2)
			r.sent(0, 1)
			r.end(failed.ReplayDone)
			archivetest.Must(t, w.Client.Declare(t.Context(), a.OutcomeTopology()))
			publish := func(i int, change func(amqp.Table)) {
				q := r.request(i, "q")
				headers := amqp.Table{"replay": q.Replay, "key": q.Key, "queue": "q", "attempt": int32(1), "result": "succeeded"}
				change(headers)
				archivetest.Must(t, w.Raw.PublishWithContext(t.Context(), "", a.OutcomeQueue(), true, false, amqp.Publishing{Headers: headers}))
			}
			publish(0, forge)
			publish(1, func(amqp.Table) {})
			re := New(w.Client, a, Config{Poll: 10 * time.Millisecond})
			w.Runs(re.Run)
			testkit.Eventually(t, archivetest.Longest, func() error {
				r, err := a.Replay(t.Context(), r.id)
				if err == nil && r.Succeeded != 1 {
					err = fmt.Errorf("got replay %+v, want 1 success", r)
				}
				return err
			})
		})
	}
}

// A message whose work queue only the bindings show is settled by the queue to which the replay sent it.
func TestOutcomesSettleInQueueOfReplay(t *testing.T) {
	now := time.Now()
	r := newReported(t, archiveAt(t, func() time.Time { return now }), 2)
	r.sent(0)
	archivetest.Must(t, r.archive.MarkSent(t.Context(), r.id, r.ids[1:], store.StringsOnly, "charges"))
	r.end(failed.ReplayDone)
	queues, err := r.archive.UnsettledQueues(t.Context())
	archivetest.Must(t, err)
	slices.Sort(queues)
	if !slices.Equal(queues, []string{"charges", "q"}) {
		t.Errorf("unsettled queues: got %q", queues)
	}
	now = now.Add(time.Minute)
	archivetest.Must(t, r.archive.SettleOutcomes(t.Context(), []string{"q"}, now))
	r.want(failed.OutcomeSettled, failed.OutcomeUnknown)
	archivetest.Must(t, r.archive.SettleOutcomes(t.Context(), []string{"charges"}, now))
	r.want(failed.OutcomeSettled, failed.OutcomeSettled)
	if queues, err := r.archive.UnsettledQueues(t.Context()); err != nil || len(queues) > 0 {
		t.Errorf("unsettled queues: got %q, %v", queues, err)
	}
}
