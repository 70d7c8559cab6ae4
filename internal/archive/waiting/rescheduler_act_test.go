package waiting

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/archive/archivetest"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/sift"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/params"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
	"github.com/reprisemq/reprise/topology"
)

// actor is a worker whose messages fail at their first attempt, and then wait for an hour.
type actor struct {
	*retryingWorker
	wait string

	mu      sync.Mutex
	handled []string // ID and attempt
}

func newActor(t *testing.T, url string, n int) *actor {
	t.Helper()
	return newActorFrom(archivetest.NewWire(t, url), n)
}

// newActorFrom is like newActor, but uses an existing broker and archive.
func newActorFrom(w *archivetest.Wire, n int) *actor {
	t := w.T
	t.Helper()
	x := &actor{}
	x.retryingWorker = newRetryingFrom(w, testkit.Name(t, "work"), topology.Strategy{}, func(m *reprise.Delivery) error {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.handled = append(x.handled, fmt.Sprint(m.MessageID, "/", m.Attempt))
		if m.Attempt == 1 {
			return fmt.Errorf("no customer %s", m.MessageID)
		}
		return nil
	})
	x.wait = x.work + ".wait.3078660-3848325"
	x.DeleteLater(x.wait)
	var batch []*reprise.Message
	for i := range n {
		batch = append(batch, &reprise.Message{
			RoutingKey: x.work, MessageID: fmt.Sprint(i), Body: fmt.Append(nil, i), Headers: map[string]any{"own": int32(7)}, ContentType: "text/plain", Priority: 3,
		})
	}
	archivetest.Must(t, x.Client.PublishBatch(t.Context(), batch))
	testkit.Eventually(t, archivetest.Longest, func() error {
		c, err := x.Archive.CountWaiting(t.Context(), store.WaitingFilter{Queue: params.Text(x.work)})
		if err == nil && int(c.Messages) != n {
			err = fmt.Errorf("got %d listed messages, want %d", c.Messages, n)
		}
		return err
	})
	return x
}

func (x *actor) row(id string) store.Waiting {
	x.Helper()
	all, _, err := x.Archive.Waiting(x.Context(), store.WaitingFilter{Queue: params.Text(x.work)}, store.Page{Size: 1000})
	archivetest.Must(x.T, err)
	for _, w := range all {
		if string(w.MessageID) == id {
			return w
		}
	}
	x.Fatalf("message %s is not listed", id)
	return store.Waiting{}
}

func (x *actor) act(act Act) Result {
	x.Helper()
	res, err := x.r.Act(x.Context(), act, "ann")
	archivetest.Must(x.T, err)
	return res
}

func (x *actor) attempts() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(x.handled), func(s string) bool { return strings.HasSuffix(s, "/1") })
	slices.Sort(all)
	return all
}

// order returns the message ids in the wait queue. The order may differ from the order of publication, because a worker
// may publish copies in any order.
func (x *actor) order(n int) (ids []string) {
	x.Helper()
	_, _, err := sift.Queue(x.Context(), x.Client, x.wait, n, func(m *reprise.Delivery) (picked, last bool) {
		ids = append(ids, m.MessageID)
		return false, false
	}, func([]*reprise.Delivery) []sift.Verdict { return nil })
	archivetest.Must(x.T, err)
	return ids
}

func rowsOf(rows ...store.Waiting) (f store.WaitingFilter) {
	for _, w := range rows {
		f.IDs = append(f.IDs, w.ID)
	}
	return f
}

// bodies waits for n messages in a queue and takes them.
func (x *retryingWorker) bodies(queue string, n int) (all []amqp.Delivery) {
	x.Helper()
	testkit.Eventually(x.T, archivetest.Longest, func() error {
		all = append(all, x.Take(queue)...)
		if len(all) < n {
			return fmt.Errorf("got %d messages, want %d", len(all), n)
		}
		return nil
	})
	return all
}

// Each act performs its action on the selected messages, and keeps the others unchanged and in order.
func TestActsOnWaitingMessages(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		x := newActor(t, b.URL, 8)
		others := slices.DeleteFunc(x.order(8), func(id string) bool { return slices.Contains([]string{"0", "1", "3", "4"}, id) })
		if res := x.act(Act{Do: RetryNow, Filter: rowsOf(x.row("1"), x.row("3"))}); res.Selected != 2 || res.Done != 2 || len(res.Refused) > 0 {
			t.Errorf("retry now: got %+v, want 2 of 2 done", res)
		}
		testkit.Eventually(t, archivetest.Longest, func() bool { return slices.Equal(x.attempts(), []string{"1/2", "3/2"}) })

		if res := x.act(Act{Do: ParkNow, Filter: rowsOf(x.row("4")), Reason: "no such customer"}); res.Selected != 1 || res.Done != 1 || len(res.Refused) > 0 {
			t.Errorf("park: got %+v, want 1 of 1 done", res)
		}
		parked := x.bodies(topology.FailedQueue(x.work), 1)[0]
		trail := topology.Trail{}.Read(topology.Delivery{Headers: topology.Table(parked.Headers)})
		attempt := parked.Headers[topology.HeaderErrors].([]any)[0].(amqp.Table)
		if string(parked.Body) != "4" || parked.MessageId != "4" || parked.Expiration != "" || parked.Headers["own"] != int32(7) || parked.ContentType != "text/plain" ||
			parked.Priority != 3 || trail.Attempts != 1 || trail.Queue != x.work || attempt["error"] != "no customer 4" ||
			parked.Headers[topology.HeaderReason] != "parked by ann: no such customer" || parked.Headers["x-death"] != nil {
			t.Errorf("parked message: got %+v, want message 4 after 1 attempt, with the reason and without x-death", parked)
		}

		if res := x.act(Act{Do: Postpone, Filter: rowsOf(x.row("0")), Delay: params.Duration(5 * time.Hour)}); res.Selected != 1 || res.Done != 1 || len(res.Refused) > 0 {
			t.Errorf("postpone: got %+v, want 1 of 1 done", res)
		}
		later := x.row("0")
		x.DeleteLater(string(later.Wait))
		if time.Until(later.Due).Round(time.Hour) != 5*time.Hour || string(later.Wait) == x.wait || later.Attempt != 1 {
			t.Errorf("postponed message in the list: got %+v, want due in 5 hours in another wait queue, attempt 1", later)
		}
		postponed := x.bodies(string(later.Wait), 1)[0]
		if string(postponed.Body) != "0" || postponed.Expiration != fmt.Sprint((5*time.Hour).Milliseconds()) || postponed.Headers[topology.HeaderAttempts] != int64(1) {
			t.Errorf("postponed message: got %+v, want body 0, an expiration of 5 hours, 1 attempt", postponed)
		}

		var rest []string
		for _, d := range x.bodies(x.wait, 4) {
			rest = append(rest, d.MessageId)
			if n, _ := d.Headers["x-delivery-count"].(int64); n > 0 && b.Version != "3.10" {
				t.Errorf("message %s was delivered %d times", d.MessageId, n)
			}
		}
		if !slices.Equal(rest, others) || len(others) != 4 {
			t.Errorf("other messages: got %s, want %s", rest, others)
		}
		if res := x.act(Act{Do: RetryNow, Filter: store.WaitingFilter{Queue: params.Text(x.work), Attempt: 1}}); res.Selected != 5 || res.Gone != 5 || res.Done != 0 {
			t.Errorf("messages no longer in the wait queue: got %+v, want 5 of 5 gone", res)
		}
		acts, _, err := x.Archive.Acts(t.Context(), store.ActFilter{}, store.Page{})
		archivetest.Must(t, err)
		var verbs []string
		for _, a := range acts {
			verbs = append(verbs, a.Verb)
		}
		if want := []string{"retry now ended", "retry now", "postpone ended", "postpone", "park ended", "park", "retry now ended", "retry now"}; !slices.Equal(verbs, want) {
			t.Errorf("audit log: got %s, want %s", verbs, want)
		}
	})
}

// An act keeps the order of the other messages in the wait queue, even after earlier acts. A quorum queue expires
// messages only at its head, so a message behind a later message would be retried late.
func TestActsKeepOrderOfOtherMessages(t *testing.T) {
	const n = 300
	body := make([]byte, 64<<10) // large, so that an act finds its message before the broker has sent all messages
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		x := newActor(t, b.URL, 0)
		var batch []*reprise.Message
		for i := range n {
			batch = append(batch, &reprise.Message{RoutingKey: x.work, MessageID: fmt.Sprint(i), Body: body})
		}
		archivetest.Must(t, x.Client.PublishBatch(t.Context(), batch))
		x.list(n)
		want := x.order(n)
		for _, id := range []string{"9", "2", "4"} {
			if res := x.act(Act{Do: ParkNow, Filter: rowsOf(x.row(id))}); res.Done != 1 {
				t.Errorf("park: got %+v, want 1 done", res)
			}
			want = slices.DeleteFunc(want, func(s string) bool { return s == id })
		}
		var got []string
		for _, d := range x.bodies(x.wait, n-3) {
			got = append(got, d.MessageId)
		}
		if !slices.Equal(got, want) {
			t.Errorf("order: got %s, want %s", got, want)
		}
	})
}

// The acts and their list work with PostgreSQL, too.
func TestActsOnWaitingMessagesInPostgreSQL(t *testing.T) {
	db, err := sql.Open("pgx", pgtest.Schema(t))
	archivetest.Must(t, err)
	t.Cleanup(func() { archivetest.Must(t, db.Close()) })
	w := archivetest.NewWire(t, testkit.Embedded(t).URL)
	w.Archive, err = store.Open(t.Context(), db, store.Config{Dialect: store.PostgreSQL})
	archivetest.Must(t, err)
	x := newActorFrom(w, 4)
	later := Act{Do: Postpone, Filter: rowsOf(x.row("0")), Delay: params.Duration(5 * time.Hour)}
	for _, act := range []Act{{Do: RetryNow, Filter: rowsOf(x.row("1"))}, {Do: ParkNow, Filter: rowsOf(x.row("2"))}, later} {
		if res := x.act(act); res.Selected != 1 || res.Done != 1 {
			t.Errorf("%s: got %+v, want 1 of 1 done", act.Do, res)
		}
	}
	testkit.Eventually(t, archivetest.Longest, func() bool { return slices.Equal(x.attempts(), []string{"1/2"}) })
	if parked := x.bodies(topology.FailedQueue(x.work), 1)[0]; parked.MessageId != "2" {
		t.Errorf("parked message: got %+v, want message 2", parked)
	}
	postponed, waits := x.row("0"), x.row("3")
	x.DeleteLater(string(postponed.Wait))
	if left := x.list(2); time.Until(postponed.Due).Round(time.Hour) != 5*time.Hour || postponed.Wait == waits.Wait {
		t.Errorf("listed messages: got %+v, want one postponed by 5 hours", left)
	}
	if n := x.Depth(x.wait) + x.Depth(string(postponed.Wait)); n != 2 {
		t.Errorf("got %d waiting messages, want 2", n)
	}
}

// An act covers all selected messages, at any position in the wait queue, but at most the number that the operator has
// confirmed.
func TestActOnManyWaitingMessages(t *testing.T) {
	const n = 2600 // more than the prefetch of a quorum queue
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		x := newActor(t, b.URL, n)
		f := store.WaitingFilter{Queue: params.Text(x.work)}
		for _, act := range []Act{{Do: RetryNow, Filter: f, AtMost: n - 1}, {Do: ParkNow, Filter: f, AtMost: 1}} {
			if _, err := x.r.Act(t.Context(), act, "ann"); !errors.Is(err, failed.ErrState) {
				t.Errorf("act beyond AtMost: got error %v, want ErrState", err)
			}
		}
		seven := store.WaitingFilter{Queue: params.Text(x.work), Error: "customer 7"}
		selected, err := x.Archive.CountWaiting(t.Context(), seven)
		archivetest.Must(t, err)
		if res := x.act(Act{Do: ParkNow, Filter: seven, AtMost: selected.Messages}); res.Done != selected.Messages || res.Done < 100 {
			t.Errorf("park: got %+v, want %d done, at least 100", res, selected.Messages)
		}
		if got := len(x.bodies(topology.FailedQueue(x.work), int(selected.Messages))); got != int(selected.Messages) {
			t.Errorf("got %d parked messages, want %d", got, selected.Messages)
		}
		if res := x.act(Act{Do: RetryNow, Filter: f, AtMost: n}); res.Done != n-selected.Messages || res.Selected != res.Done {
			t.Errorf("retry now: got %+v, want %d done", res, n-selected.Messages)
		}
		testkit.Eventually(t, archivetest.Longest, func() bool { return len(x.attempts()) == n-int(selected.Messages) })
		if n := x.Depth(x.wait); n != 0 {
			t.Errorf("got %d waiting messages, want 0", n)
		}
	})
}

// An act does not change messages for which the action is not possible, and returns the reason. It trusts no part of a
// report except the message ID.
func TestActRefusesUnverifiedMessages(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		x := newActor(t, b.URL, 1)
		other := x.Queue("other", nil)
		forged := x.work + ".wait.1-2"
		_, err := x.Raw.QueueDeclare(forged, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": other})
		archivetest.Must(t, err)
		x.DeleteLater(forged)
		for _, q := range []string{other, forged, x.work + ".failed"} {
			x.Publish(q, map[string]any{topology.HeaderAttempts: int64(1)}, "victim")
		}
		for wait, want := range map[string]string{
			other:                       "is not one of a known design",
			x.work + ".failed":          "is not one of a known design",
			x.work + ".wait.x.wait.1-2": "is not one of a known design",
			forged:                      "already exists with a different",
			x.work:                      "inside the work queue",
			"":                          "one after the other",
		} {
			r := protocol.RetryReport{Queue: x.work, Retries: []protocol.Retry{{MessageID: "victim", Wait: wait, Attempt: 1, Failed: time.Now(), Due: time.Now().Add(time.Hour)}}}
			archivetest.Must(t, x.Archive.NoteRetries(t.Context(), []protocol.RetryReport{r}))
			for _, act := range []Act{{Do: RetryNow}, {Do: ParkNow}, {Do: Postpone, Delay: params.Duration(time.Minute)}} {
				act.Filter = rowsOf(x.row("victim"))
				if res := x.act(act); res.Done != 0 || len(res.Refused) != 1 || !strings.Contains(res.Refused[0].Why, want) {
					t.Errorf("%s in %s: got %+v, want reason %q", act.Do, wait, res, want)
				}
			}
		}
		archivetest.Must(t, x.Archive.NoteRetries(t.Context(), []protocol.RetryReport{{Queue: x.work, Retries: []protocol.Retry{{Wait: x.wait, Attempt: 1, Failed: time.Now(), Due: time.Now().Add(time.Hour)}}}}))
		if res := x.act(Act{Do: RetryNow, Filter: rowsOf(x.row(""))}); res.Done != 0 || len(res.Refused) != 1 || !strings.Contains(res.Refused[0].Why, "no message id") {
			t.Errorf("message without an ID: got %+v, want 1 refused, \"no message id\"", res)
		}
		for _, q := range []string{other, forged, x.work + ".failed"} {
			if n := len(x.bodies(q, 1)); n != 1 {
				t.Errorf("queue %s: got %d messages, want 1", q, n)
			}
		}
		for _, act := range []Act{
			{},
			{Do: RetryNow},
			{Do: Postpone, Filter: store.WaitingFilter{Queue: "q"}},
			{Do: RetryNow, Filter: store.WaitingFilter{Queue: "q"}, Delay: params.Duration(time.Hour)},
			{Do: RetryNow, All: true, Filter: store.WaitingFilter{Queue: "q"}},
			{Do: RetryNow, Filter: store.WaitingFilter{Group: "x"}},
		} {
			if _, err := x.r.Act(t.Context(), act, "ann"); !errors.Is(err, failed.ErrInvalid) {
				t.Errorf("%+v: got error %v, want ErrInvalid", act, err)
			}
		}
	})
}

// If a connection fails at any frame of an act, no message is lost. RetryNow never duplicates a message. Actions that
// copy messages may.
func TestActSurvivesConnectionLossAtAnyFrame(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		w := archivetest.NewWire(t, b.URL)
		step := 1
		switch {
		case b.IsRabbitMQ:
			step = 9 // closing a connection takes time
		case testing.Short():
			step = 3
		}
		const n = 4
		first := 0
		for _, do := range []Do{RetryNow, ParkNow, Postpone} {
			for _, direction := range []testkit.Direction{testkit.ToClient, testkit.ToServer} {
				for frame := 1 + first%step; frame <= 26; frame += step {
					cutAct(t, w, b, do, direction, frame, n)
				}
				first += 2 // so that the connection of each act is cut at different frames, even with large steps
			}
		}
	})
}

func cutAct(t *testing.T, w *archivetest.Wire, b testkit.Target, do Do, direction testkit.Direction, frame, n int) {
	work := testkit.Name(t, "work")
	route := topology.Buckets{}
	d := topology.Delivery{Queue: work}
	hop, err := route.Wait(d, time.Hour)
	archivetest.Must(t, err)
	later, err := route.Wait(d, 5*time.Hour)
	archivetest.Must(t, err)
	queues := []string{work, hop.RoutingKey, later.RoutingKey, topology.FailedQueue(work)}
	defer func() {
		for _, q := range queues {
			_, _ = w.Raw.QueueDelete(q, false, false, false)
		}
	}()
	archivetest.Must(t, w.Client.Declare(t.Context(), route.Topology(work)))
	archivetest.Must(t, w.Client.Declare(t.Context(), hop.Topology))
	archivetest.Must(t, w.Client.Declare(t.Context(), later.Topology))
	var r protocol.RetryReport
	r.Queue = work
	for i := range n {
		id := fmt.Sprint(work, i)
		archivetest.Must(t, w.Client.Publish(t.Context(), &reprise.Message{RoutingKey: hop.RoutingKey, MessageID: id, Body: []byte(id), Expiration: time.Hour}))
		r.Retries = append(r.Retries, protocol.Retry{MessageID: id, Wait: hop.RoutingKey, Attempt: 1, Failed: time.Now(), Due: time.Now().Add(time.Hour)})
	}
	archivetest.Must(t, w.Archive.NoteRetries(t.Context(), []protocol.RetryReport{r}))
	testkit.Eventually(t, archivetest.Longest, func() bool { return w.Depth(hop.RoutingKey) == n })

	proxy := testkit.NewProxy(t, b.URL)
	ctx, cancel := context.WithTimeout(t.Context(), archivetest.Longest)
	defer cancel()
	c, err := reprise.Dial(ctx, proxy.URL(), &reprise.Config{Reconnect: backoff.Fixed(10 * time.Millisecond)})
	archivetest.Must(t, err)
	defer c.Close(ctx)
	x := New(c, w.Archive, Config{})
	proxy.CutAfterFrame(direction, frame)
	act := Act{Do: do, Filter: store.WaitingFilter{Queue: params.Text(work)}}
	if do == Postpone {
		act.Delay = params.Duration(5 * time.Hour)
	}
	res, err := x.Act(ctx, act, "ann")
	name := fmt.Sprintf("%s, %s, frame %d: %+v, %v", do, direction, frame, res, err)
	archivetest.Must(t, c.Close(ctx))
	sum := res.Done + res.Gone + res.Unsure
	for _, f := range res.Refused {
		sum += f.Messages
	}
	if res.Selected != int64(n) || sum != int64(n) || res.Gone > 0 {
		t.Errorf("%s: got %+v with sum %d, want %d selected and 0 gone", name, res, sum, n)
	}
	to := map[Do]string{RetryNow: work, ParkNow: topology.FailedQueue(work), Postpone: later.RoutingKey}[do]
	var there, moved map[string]int
	testkit.Eventually(t, archivetest.Longest, func() error { // the broker requeues the deliveries of the connection
		there, moved = count(t, w, hop.RoutingKey), count(t, w, to)
		for _, x := range r.Retries {
			if there[x.MessageID]+moved[x.MessageID] == 0 {
				return fmt.Errorf("%s: message %s is lost: %v, %v", name, x.MessageID, there, moved)
			}
		}
		return nil
	})
	twice, done := 0, 0
	for _, x := range r.Retries {
		switch {
		case there[x.MessageID] > 1 || moved[x.MessageID] > 1, there[x.MessageID] == 1 && moved[x.MessageID] == 1 && do == RetryNow:
			t.Errorf("%s: message %s is %d times in the wait queue and %d times in the target queue", name, x.MessageID, there[x.MessageID], moved[x.MessageID])
		case there[x.MessageID] == 1 && moved[x.MessageID] == 1:
			twice++
		case moved[x.MessageID] == 1:
			done++
		}
	}
	if int64(twice) > res.Unsure || int64(done) < res.Done {
		t.Errorf("%s: got %d duplicates and %d moved messages, want at most %d duplicates and at least %d moved messages", name, twice, done, res.Unsure, res.Done)
	}
}

// count returns the number of messages in a queue by ID. It does not remove the messages.
func count(t *testing.T, w *archivetest.Wire, queue string) map[string]int {
	t.Helper()
	all := map[string]int{}
	conn, err := amqp.Dial(w.URL)
	archivetest.Must(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	archivetest.Must(t, err)
	for {
		d, ok, err := ch.Get(queue, false)
		archivetest.Must(t, err)
		if !ok {
			return all
		}
		all[d.MessageId]++
	}
}
