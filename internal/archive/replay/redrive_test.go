package replay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

func ids(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("id-", i))
	}
	return all
}

func TestRedriveKeepsOrderAndResetsAttempts(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		work, from := w.Queue("work", nil), w.Queue("failed", nil)
		want := ids(25)
		w.Publish(from, map[string]any{
			topology.HeaderQueue: work, topology.HeaderAttempts: int64(10), topology.HeaderReason: "10 attempts made", "mb-retries": int32(0),
			topology.HeaderErrors: []any{topology.Table{"error": "no"}}, topology.HeaderReplay: "1/1", "own": "kept", "CC": []any{from},
		}, want...)
		w.Take(from) // the copies that CC created
		w.Publish(from, map[string]any{topology.HeaderQueue: work, topology.HeaderAttempts: int64(10), topology.HeaderReplay: "1/1", "own": "kept"}, want...)
		calls := 0
		got, err := redriveFrom(t.Context(), w.Client, RedriveConfig{From: from, Progress: func(int, int) { calls++ }})
		if err != nil || got != (redriveResult{Found: 25, Sent: 25}) || calls != 25 {
			t.Errorf("got %+v, %v and %d calls of Progress, want 25", got, err, calls)
		}
		var arrived []string
		for _, d := range w.Take(work) {
			arrived = append(arrived, d.MessageId)
			delete(d.Headers, "x-delivery-count")
			if mark, _ := d.Headers[topology.HeaderReplay].(string); !strings.HasPrefix(mark, redriveMark) {
				t.Errorf("got mark %q, want %s and an ID", mark, redriveMark)
			}
			delete(d.Headers, topology.HeaderReplay)
			if len(d.Headers) != 2 || d.Headers["own"] != "kept" || d.Headers[topology.HeaderQueue] != work {
				t.Errorf("got headers %v, want own: kept and the work queue %s", d.Headers, work)
			}
		}
		if diff := cmp.Diff(want, arrived); diff != "" {
			t.Error(diff)
		}
		if got, err := redriveFrom(t.Context(), w.Client, RedriveConfig{From: from}); err != nil || got != (redriveResult{}) {
			t.Errorf("empty queue: got %+v, %v, want 0 of 0", got, err)
		}
	})
}

// A message that cannot be sent and the messages behind it stay in their queue. Redrive returns the error.
func TestRedriveToMissingQueueStops(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		from := w.Queue("failed", nil)
		w.Publish(from, nil, ids(5)...)
		for _, tc := range []struct {
			config RedriveConfig
			want   string
		}{
			{RedriveConfig{To: &failed.Target{RoutingKey: "nowhere"}}, `: reprise: unroutable: queue "nowhere" does not exist`},
			{RedriveConfig{To: &failed.Target{Exchange: "amq.direct", RoutingKey: "nowhere"}}, `no queue is bound to exchange "amq.direct" for routing key "nowhere"`},
			{RedriveConfig{}, `: queue in which the message failed is unknown`},
		} {
			tc.config.From = from
			got, err := redriveFrom(t.Context(), w.Client, tc.config)
			if err == nil || !strings.Contains(err.Error(), tc.want) || got != (redriveResult{Found: 5}) {
				t.Errorf("got %+v, %v, want error %q", got, err, tc.want)
			}
			testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(from) == 5 })
		}
		_, err := redriveFrom(t.Context(), w.Client, RedriveConfig{From: "nowhere"})
		if missing, ok := errors.AsType[*reprise.QueueError](err); !ok || missing.Queue != "nowhere" {
			t.Errorf("missing queue: got error %v, want a QueueError", err)
		}
		for i, d := range w.Take(from) {
			if d.MessageId != fmt.Sprint("id-", i) {
				t.Errorf("message %d: got ID %s, want id-%d", i, d.MessageId, i)
			}
		}
	})
}

// If the destination of a redrive is the failed queue itself, the redrive moves each message once.
func TestRedriveOfQueueToItselfEnds(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		from := w.Queue("failed", nil)
		w.Publish(from, nil, ids(20)...)
		got, err := redriveFrom(t.Context(), w.Client, RedriveConfig{From: from, To: &failed.Target{RoutingKey: from}})
		if err != nil || got != (redriveResult{Found: 20, Sent: 20}) {
			t.Errorf("got %+v, %v, want 20 of 20", got, err)
		}
		testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(from) == 20 })
		for i, d := range w.Take(from) {
			if d.MessageId != fmt.Sprint("id-", i) {
				t.Errorf("message %d: got ID %s, want id-%d", i, d.MessageId, i)
			}
		}
	})
}

// A connection loss at any frame does not lose messages.
func TestRedriveSurvivesConnectionLoss(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		from, to := w.Queue("failed", nil), w.Queue("work", nil)
		for _, direction := range []testkit.Direction{testkit.ToClient, testkit.ToServer} {
			for frame := 1; frame <= 17; frame += 4 {
				proxy := testkit.NewProxy(t, b.URL)
				c := archivetest.Connect(t, proxy.URL())
				w.Publish(from, nil, ids(6)...)
				proxy.CutBeforeFrame(direction, frame)
				if _, err := redriveFrom(t.Context(), c, RedriveConfig{From: from, To: &failed.Target{RoutingKey: to}}); err != nil {
					t.Errorf("cut before frame %d %v: %v", frame, direction, err)
				}
				testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(from) == 0 && w.Depth(to) >= 6 })
				arrived := map[string]int{}
				for _, d := range w.Take(to) {
					arrived[d.MessageId]++
				}
				if len(arrived) != 6 {
					t.Errorf("cut before frame %d %v: got messages %v, want 6", frame, direction, arrived)
				}
				proxy.Cut()
			}
		}
	})
}

// A redrive ends even if another consumer empties the queue. It also ends when it is canceled.
func TestRedriveEndsWithConcurrentConsumer(t *testing.T) {
	b := testkit.Embedded(t)
	w := archivetest.NewWire(t, b.URL)
	from, to := w.Queue("failed", nil), w.Queue("work", nil)
	w.Publish(from, nil, ids(50)...)
	slowly := func(progress func(found, sent int)) RedriveConfig { // progress is reported before the next message
		return RedriveConfig{From: from, To: &failed.Target{RoutingKey: to}, Rate: 10, Progress: progress}
	}
	taken := 0
	got, err := redriveFrom(t.Context(), w.Client, slowly(func(_, sent int) {
		if sent == 2 {
			taken = len(w.Take(from))
		}
	}))
	if err != nil || got.Found != 50 || got.Sent+taken != 50 || taken == 0 {
		t.Errorf("got %+v, %v, and %d messages by the other consumer, want 50 messages in total", got, err, taken)
	}

	w.Publish(from, nil, ids(50)...)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	got, err = redriveFrom(ctx, w.Client, slowly(func(_, sent int) {
		if sent == 2 {
			cancel(enough)
		}
	}))
	if !errors.Is(err, enough) || got.Sent < 2 || got.Sent == 50 {
		t.Errorf("got %+v, %v, want %v after 2 to 49 messages", got, err, enough)
	}
	testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(from) == 50-got.Sent })
}

// redriveResult is the result of Redrive without its error.
type redriveResult struct{ Found, Sent int }

func redriveFrom(ctx context.Context, c *reprise.Client, cfg RedriveConfig) (r redriveResult, err error) {
	r.Found, r.Sent, err = Redrive(ctx, c, cfg)
	return r, err
}

// knownOrders is the routing of a worker of queue orders that retries by the name of its queue.
var knownOrders = Routing{Workers: []reprise.WorkerConfig{{Queue: "orders"}}}
