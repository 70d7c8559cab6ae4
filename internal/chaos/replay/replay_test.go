package replay

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testkit"
)

var messages = flag.Int("replay.messages", 1600, "number of messages to archive or to replay")

// kills is the number of kills. batch is the maximum number of messages that a process may have sent without a record (see
// replay.Config).
const (
	kills = 3
	batch = 100

	workQueue   = "orders"
	failedQueue = "orders.failed"

	timeout = 10 * time.Minute // the result of a test does not depend on the timeout
)

// fixture contains a broker in a separate process and an archive in a file.
type fixture struct {
	*testing.T
	archive     *store.Archive
	url         string
	conn        *amqp.Connection
	channel     *amqp.Channel
	environment []string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	file := filepath.Join(t.TempDir(), "failed.db")
	db, archive, err := openArchive(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	url := start(t, "broker").firstLine
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{workQueue, failedQueue} {
		if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	return &fixture{T: t, archive: archive, url: url, conn: conn, channel: ch, environment: []string{brokerVariable + "=" + url, archiveVariable + "=" + file}}
}

func (s *fixture) states() map[failed.State]int64 {
	s.Helper()
	queues, err := s.archive.Queues(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	n := map[failed.State]int64{}
	for _, q := range queues {
		n[failed.Failed] += q.Counts.Failed
		n[failed.Replaying] += q.Counts.Replaying
		n[failed.Replayed] += q.Counts.Replayed
	}
	return n
}

// failedQueueState returns the state of the failed queue.
func (s *fixture) failedQueueState() amqp.Queue {
	s.Helper()
	q, err := s.channel.QueueDeclarePassive(failedQueue, true, false, false, false, nil)
	if err != nil {
		s.Fatal(err)
	}
	return q
}

// runAndKill runs a role and kills its process three times, each time after a further quarter of the work. The function
// done returns the number of processed messages. runAndKill returns the process that completes the work.
func (s *fixture) runAndKill(role string, done func() int64, more ...string) *process {
	s.Helper()
	p := start(s.T, role, append(s.environment, more...)...)
	for life := range kills {
		goal := int64(*messages) * int64(life+1) / (kills + 1)
		testkit.Eventually(s.T, timeout, func() bool { return done() >= goal })
		p.kill()
		s.Logf("killed at %d of %d messages", done(), *messages)
		p = start(s.T, role, append(s.environment, more...)...)
	}
	return p
}

// The test kills the process of a replay three times. The archive then contains each message once, in state replayed, and
// each message arrives. Each kill duplicates at most one batch.
func TestKilledReplayLosesNoMessage(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	var arrivals []failed.Message
	for i := range *messages {
		arrivals = append(arrivals, failed.Message{
			Queue: workQueue, FailedQueue: failedQueue, Error: fmt.Sprintf("order %d: 503", i), Attempts: 10,
			Content: failed.Content{Body: fmt.Appendf(nil, "order %d", i), Properties: failed.Properties{MessageID: fmt.Sprint(i)}},
		})
		if len(arrivals) == 1000 || i == *messages-1 {
			if _, err := s.archive.Add(t.Context(), arrivals); err != nil {
				t.Fatal(err)
			}
			arrivals = nil
		}
	}
	r, err := s.archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}}, "test")
	if err != nil || r.Total != int64(*messages) {
		t.Fatalf("replay: got %+v, %v; want %d messages", r, err, *messages)
	}
	deliveries, err := s.channel.Consume(workQueue, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	sent := func() int64 {
		now, err := s.archive.Replay(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		return now.Sent
	}
	last := s.runAndKill("replay", sent, fmt.Sprint(replayVariable, "=", r.ID))
	if err := last.Wait(); err != nil {
		t.Fatal(err)
	}
	// All messages of the replay are confirmed, so they precede this message in the queue.
	const end = "end"
	if err := s.channel.PublishWithContext(t.Context(), "", workQueue, false, false, amqp.Publishing{MessageId: end}); err != nil {
		t.Fatal(err)
	}
	arrived := map[string]int{}
	for d := range deliveries {
		if d.MessageId == end {
			break
		}
		arrived[d.MessageId]++
	}
	twice := 0
	for _, n := range arrived {
		twice += n - 1
	}
	t.Logf("%d messages arrived, %d duplicates", len(arrived), twice)
	if len(arrived) != *messages || twice > kills*batch {
		t.Errorf("arrived messages: got %d, want %d; duplicates: got %d, want at most %d", len(arrived), *messages, twice, kills*batch)
	}
	if n := s.states(); n[failed.Replayed] != int64(*messages) || n[failed.Failed]+n[failed.Replaying] != 0 {
		t.Errorf("states: got %v, want %d replayed messages", n, *messages)
	}
	now, err := s.archive.Replay(t.Context(), r.ID)
	if err != nil || now.State != failed.ReplayDone || now.Sent != now.Total {
		t.Errorf("replay: got %+v, %v, want done", now, err)
	}
}

// The test kills the process of an Ingest three times. The archive then contains each message once.
func TestKilledIngestArchivesEachMessageOnce(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	for i := range *messages {
		err := s.channel.PublishWithContext(t.Context(), "", failedQueue, false, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, MessageId: fmt.Sprint(i), Body: fmt.Appendf(nil, "order %d", i),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	kept := func() int64 { return s.states()[failed.Failed] }
	last := s.runAndKill("ingest", kept)
	for left := -1; left != 0; last = start(t, "ingest", s.environment...) {
		testkit.Eventually(t, timeout, func() bool { return s.failedQueueState().Messages == 0 && kept() >= int64(*messages) })
		last.kill()
		testkit.Eventually(t, timeout, func() bool { return s.failedQueueState().Consumers == 0 })
		left = s.failedQueueState().Messages // unsettled messages; the broker delivers them to another consumer
	}
	last.kill()
	seen := map[string]int{}
	for m, err := range s.archive.Each(t.Context(), failed.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		seen[string(m.Body)]++
	}
	if n := s.states(); n[failed.Failed] != int64(*messages) || len(seen) != *messages {
		t.Errorf("states: got %v with %d different messages, want %d failed messages", n, len(seen), *messages)
	}
}
