package replay

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/archive/failed"
)

// The test replays messages with an edit, and kills the replaying process three times. Each message that matches the edit
// arrives edited, and its duplicates have the same bytes. The other messages remain failed. The archive contains the
// original and the sent content of each message.
func TestKilledReplayKeepsEdits(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	want := map[string]string{}
	var arrivals []failed.Message
	for i := range *messages {
		m := failed.Message{
			Queue: workQueue, FailedQueue: failedQueue, Error: fmt.Sprintf("order %d: 503", i), Attempts: 10,
			Content: failed.Content{Body: fmt.Appendf(nil, `{"order": %d, "currency": "DM"}`, i), Properties: failed.Properties{MessageID: fmt.Sprint(i)}},
		}
		if i%10 == 9 {
			m.Body = fmt.Appendf(nil, "order %d", i)
		} else {
			want[m.Properties.MessageID] = fmt.Sprintf(`{"order": %d, "currency": "EUR"}`, i)
		}
		if arrivals = append(arrivals, m); len(arrivals) == 1000 || i == *messages-1 {
			if _, err := s.archive.Add(t.Context(), arrivals); err != nil {
				t.Fatal(err)
			}
			arrivals = nil
		}
	}
	edit := &failed.BulkEdit{Patch: `[{"op":"replace","path":"/currency","value":"EUR"}]`}
	r, err := s.archive.BeginReplay(t.Context(), failed.Plan{Filter: failed.Filter{All: true}, Edit: edit}, "test")
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := s.channel.Consume(workQueue, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	done := func() int64 {
		now, err := s.archive.Replay(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		return now.Sent + now.Refused
	}
	if err := s.runAndKill("replay", done, fmt.Sprint(replayVariable, "=", r.ID)).Wait(); err != nil {
		t.Fatal(err)
	}
	const end = "end"
	if err := s.channel.PublishWithContext(t.Context(), "", workQueue, false, false, amqp.Publishing{MessageId: end}); err != nil {
		t.Fatal(err)
	}
	arrived := map[string]int{}
	for d := range deliveries {
		if d.MessageId == end {
			break
		}
		if string(d.Body) != want[d.MessageId] {
			t.Fatalf("body of message %s: got %q, want %q", d.MessageId, d.Body, want[d.MessageId])
		}
		arrived[d.MessageId]++
	}
	twice := 0
	for _, n := range arrived {
		twice += n - 1
	}
	t.Logf("%d of %d messages arrived, %d duplicates", len(arrived), *messages, twice)
	if len(arrived) != len(want) || twice > kills*batch {
		t.Errorf("arrived messages: got %d, want %d; duplicates: got %d, want at most %d", len(arrived), len(want), twice, kills*batch)
	}
	for m, err := range s.archive.Each(t.Context(), failed.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		body, isEdited := want[m.Properties.MessageID]
		edits, err := s.archive.Edits(t.Context(), m.ID)
		switch {
		case err != nil:
			t.Fatal(err)
		case isEdited && (m.State != failed.Replayed || string(m.Current().Body) != body || string(m.Body) == body || len(edits) != 1 || edits[0].Replay != r.ID):
			t.Fatalf("edited message %d: got state %s, body %q, edits %+v; want replayed with body %q and one edit", m.ID, m.State, m.Current().Body, edits, body)
		case !isEdited && (m.State != failed.Failed || m.Refused != "body is not valid JSON" || len(edits) != 0):
			t.Fatalf("refused message %d: got state %s, reason %q, edits %+v; want failed without edits", m.ID, m.State, m.Refused, edits)
		}
	}
}
