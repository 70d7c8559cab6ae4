package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/outbox"
)

// intake is a running Intake, with a channel of another program.
type intake struct {
	*amqp.Channel
	conn     *amqp.Connection
	t        *testing.T
	client   *reprise.Client
	box      *outbox.Box
	exchange string
	cfg      outbox.IntakeConfig
	stop     func()
}

func newIntake(t *testing.T, target testkit.Target, box *outbox.Box, options ...func(*outbox.IntakeConfig)) *intake {
	t.Helper()
	client, err := reprise.Dial(t.Context(), target.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := amqp.Dial(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	in := &intake{Channel: ch, conn: conn, t: t, client: client, box: box, exchange: testkit.Name(t, "schedule")}
	in.cfg.Exchange = in.exchange
	for _, o := range options {
		o(&in.cfg)
	}
	t.Cleanup(func() {
		in.stop()
		for _, suffix := range []string{"", ".expired", ".failed"} {
			_, queue := ch.QueueDelete(in.exchange+suffix, false, false, false)
			if err := errors.Join(queue, ch.ExchangeDelete(in.exchange+suffix, false, false)); err != nil {
				t.Error(err)
			}
		}
		conn.Close()
		if err := client.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	in.run()
	testkit.Eventually(t, timeout, func() error { return in.consumers(".expired", 1) })
	testkit.Eventually(t, timeout, func() error { return in.consumers("", 1) })
	return in
}

// run runs the intake until stop is called.
func (in *intake) run() {
	in.t.Helper()
	i, err := outbox.NewIntake(in.box, in.client, in.cfg)
	if err != nil {
		in.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(in.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := i.Run(ctx); err != nil {
			in.t.Error(err)
		}
	})
	in.stop = func() {
		cancel()
		wg.Wait()
	}
}

// consumers returns an error unless a queue has n consumers.
func (in *intake) consumers(suffix string, n int) error {
	return in.look(func(ch *amqp.Channel) error {
		q, err := ch.QueueDeclarePassive(in.exchange+suffix, true, false, false, false, nil)
		if err == nil && q.Consumers != n {
			err = fmt.Errorf("queue %s: got %d consumers, want %d", q.Name, q.Consumers, n)
		}
		return err
	})
}

// look calls f with a channel that the broker may close, because a queue does not exist.
func (in *intake) look(f func(ch *amqp.Channel) error) error {
	ch, err := in.conn.Channel()
	if err != nil {
		return err
	}
	defer ch.Close()
	return f(ch)
}

func (in *intake) publish(key string, p amqp.Publishing) {
	in.t.Helper()
	p.DeliveryMode = amqp.Persistent
	if err := in.PublishWithContext(in.t.Context(), in.exchange, key, true, false, p); err != nil {
		in.t.Fatal(err)
	}
}

// rows waits for n rows, and returns them by their ids.
func (in *intake) rows(n int) map[string]outbox.Row {
	in.t.Helper()
	byID := map[string]outbox.Row{}
	testkit.Eventually(in.t, timeout, func() error {
		rows, err := in.box.List(in.t.Context(), outbox.Filter{})
		if err == nil && len(rows) != n {
			err = fmt.Errorf("got %d rows, want %d", len(rows), n)
		}
		for _, r := range rows {
			byID[r.MessageID] = r
		}
		return err
	})
	return byID
}

// get waits for the first message of a queue.
func (in *intake) get(queue string) (d amqp.Delivery) {
	in.t.Helper()
	testkit.Eventually(in.t, timeout, func() error {
		var found bool
		var err error
		if d, found, err = in.Get(queue, true); err == nil && !found {
			err = fmt.Errorf("queue %s is empty", queue)
		}
		return err
	})
	return d
}

func TestIntakeSchedulesMessages(t *testing.T) {
	testkit.Each(t, func(t *testing.T, target testkit.Target) {
		clock := newClock()
		in := newIntake(t, target, openSQLite(t).box(t, clock), func(c *outbox.IntakeConfig) { c.Destinations = []string{"", "allowed"} })
		now := clock.Now()
		due := map[string]time.Time{}
		send := func(id string, at time.Time, headers amqp.Table) {
			t.Helper()
			due[id] = at
			in.publish("orders", amqp.Publishing{MessageId: id, Headers: headers})
		}
		second := now.Add(time.Second)
		for _, v := range []any{int8(100), byte(100), int16(1000), int32(1000), int64(1000), float32(1000.5), 1000.9, "1000", []byte("1000")} {
			at := second
			if fmt.Sprint(v) == "100" {
				at = now.Add(100 * time.Millisecond)
			}
			id := fmt.Sprintf("delay %T", v)
			send(id, at, amqp.Table{"x-delay": v})
		}
		send("beyond the plugin", now.Add((1<<32)*time.Millisecond), amqp.Table{"x-delay": int64(1 << 32)})
		send("no headers", now, nil)
		send("zero", now, amqp.Table{"x-delay": int32(0)})
		send("delayed before", now, amqp.Table{"x-delay": int32(-5000)})
		send("rfc 3339", second, amqp.Table{"x-reprise-at": second.In(time.FixedZone("", 3600)).Format(time.RFC3339)})
		send("timestamp", second, amqp.Table{"x-reprise-at": second})
		send("milliseconds", second, amqp.Table{"x-reprise-at": second.UnixMilli()})
		send("unique", second, amqp.Table{"x-delay": "1000", "x-reprise-unique": "u", "x-reprise-unique-for": int32(5000), "x-reprise-key": "k"})
		send("duplicate", second, amqp.Table{"x-delay": "1000", "x-reprise-unique": "u", "x-reprise-unique-for": int32(5000)})
		delete(due, "duplicate")
		send("to exchange", now, amqp.Table{"x-reprise-to-exchange": "allowed"})
		rows := in.rows(len(due))
		got := map[string]time.Time{}
		for id, r := range rows {
			got[id] = r.Due
		}
		if diff := cmp.Diff(due, got); diff != "" {
			t.Errorf("due times (-want +got):\n%s", diff)
		}
		if r := rows["unique"]; r.Key != "k" || r.Unique != "u" || r.Exchange != "" || r.RoutingKey != "orders" {
			t.Errorf("unique message: got %+v", r)
		}
		if r := rows["to exchange"]; r.Exchange != "allowed" {
			t.Errorf("destination: got %+v", r)
		}
	})
}

// A message leaves with its properties and headers. x-delay is negated, as by the plugin.
func TestIntakeKeepsContent(t *testing.T) {
	testkit.Each(t, func(t *testing.T, target testkit.Target) {
		clock := newClock()
		in := newIntake(t, target, openSQLite(t).box(t, clock))
		in.publish("orders", amqp.Publishing{
			Headers:     amqp.Table{"x-delay": int32(1000), "n": int32(5), "CC": []any{"copies"}, "x-reprise-key": "k", "x-death": []any{}},
			ContentType: "text/plain", ContentEncoding: "gzip", CorrelationId: "c", ReplyTo: "r", MessageId: "id", Type: "t",
			AppId: "a", UserId: "guest", Priority: 3, Expiration: "60000", Body: []byte("\x00\xff"),
		})
		in.rows(1)
		clock.pass(time.Second)
		to := &recorder{}
		step(t, relay(t, in.box, to))
		want := []reprise.Message{{
			Headers:     map[string]any{"x-delay": int32(-1000), "n": int32(5), "CC": []any{"copies"}, reprise.HeaderUserID: "guest"},
			ContentType: "text/plain", ContentEncoding: "gzip", CorrelationID: "c", ReplyTo: "r", MessageID: "id", Type: "t",
			AppID: "a", Priority: 3, Expiration: time.Minute, Body: []byte("\x00\xff"), RoutingKey: "orders", NoTimestamp: true,
		}}
		if diff := cmp.Diff(want, to.stored); diff != "" {
			t.Errorf("published messages (-want +got):\n%s", diff)
		}
	})
}

func TestIntakeParksInvalidMessages(t *testing.T) {
	testkit.Each(t, func(t *testing.T, target testkit.Target) {
		in := newIntake(t, target, openSQLite(t).box(t, newClock()))
		for _, c := range []struct {
			headers amqp.Table
			want    string
		}{
			{amqp.Table{"x-delay": "soon"}, "x-delay must be"},
			{amqp.Table{"x-delay": true}, "x-delay must be"},
			{amqp.Table{"x-delay": nil}, "x-delay must be"},
			{amqp.Table{"x-delay": math.MaxFloat64}, "x-delay must be"},
			{amqp.Table{"x-delay": time.Now()}, "x-delay must be"},
			{amqp.Table{"x-delay": time.Now().UnixMilli()}, "x-delay must be"},
			{amqp.Table{"x-reprise-at": "tomorrow"}, "x-reprise-at must be"},
			{amqp.Table{"x-reprise-at": time.Now().Unix()}, "x-reprise-at must be"}, // seconds
			{amqp.Table{"x-reprise-at": int32(5)}, "got 5 (int32)"},
			{amqp.Table{"x-reprise-at": int64(math.MaxInt64)}, "x-reprise-at must be"},
			{amqp.Table{"x-reprise-at": "2030-01-01T00:00:00Z", "x-delay": int32(1)}, "must not both"},
			{amqp.Table{"x-reprise-to-exchange": "amq.topic"}, "not permitted"},
			{amqp.Table{"x-reprise-key": int32(5)}, "x-reprise-key must be"},
			{amqp.Table{"x-reprise-key": strings.Repeat("k", 256)}, "at most 255 bytes"},
			{amqp.Table{"x-reprise-unique": "u"}, "UniqueFor"},
		} {
			in.publish("orders", amqp.Publishing{MessageId: "id", Headers: c.headers})
			d := in.get(in.exchange + ".failed")
			text := fmt.Sprint(d.Headers["x-reprise-errors"])
			if !strings.Contains(text, c.want) || d.Headers["x-reprise-routing-key"] != "orders" || d.Headers["x-reprise-queue"] != in.exchange {
				t.Errorf("%v: got %v", c.headers, d.Headers)
			}
		}
		for key, headers := range map[string]amqp.Table{
			in.exchange: nil,
			"orders":    {"CC": []any{in.exchange}},
			"invoices":  {"CC": []any{"copies", in.exchange + ".expired"}},
		} {
			in.publish(key, amqp.Publishing{Headers: headers})
			if d := in.get(in.exchange + ".failed"); !strings.Contains(fmt.Sprint(d.Headers["x-reprise-errors"]), "belongs to the intake") {
				t.Errorf("message to the queue of the intake: got %v", d.Headers)
			}
		}
		in.rows(0)
	})
}

// A replay publishes a parked message to the queue of the intake by its name. The message still has its routing key, and what a
// parked message must not have.
func TestIntakeSchedulesReplayedMessage(t *testing.T) {
	testkit.Each(t, func(t *testing.T, target testkit.Target) {
		clock := newClock()
		in := newIntake(t, target, openSQLite(t).box(t, clock))
		in.publish("orders", amqp.Publishing{
			MessageId: "id", Expiration: "60000", UserId: "guest",
			Headers: amqp.Table{"x-delay": "soon", "CC": []any{"copies"}, "mine": "1"},
		})
		parked := in.get(in.exchange + ".failed")
		again := testkit.Copied(parked)
		again.Headers["x-delay"] = "1000"
		if err := in.PublishWithContext(t.Context(), "", in.exchange, true, false, again); err != nil {
			t.Fatal(err)
		}
		in.rows(1)
		clock.pass(time.Second)
		to := &recorder{}
		step(t, relay(t, in.box, to))
		want := []reprise.Message{{
			Headers:   map[string]any{"x-delay": int32(-1000), "CC": []any{"copies"}, "mine": "1"},
			MessageID: "id", RoutingKey: "orders", Expiration: time.Minute, NoTimestamp: true,
		}}
		if diff := cmp.Diff(want, to.stored); diff != "" {
			t.Errorf("published messages (-want +got):\n%s", diff)
		}
	})
}

// A message whose expiration passes while no process schedules messages is scheduled nevertheless.
func TestIntakeSchedulesExpiredMessages(t *testing.T) {
	testkit.Each(t, func(t *testing.T, target testkit.Target) {
		in := newIntake(t, target, openSQLite(t).box(t, newClock()))
		in.stop()
		in.publish("orders", amqp.Publishing{MessageId: "id", Expiration: "20", Headers: amqp.Table{"x-delay": int32(1000), "CC": []any{"copies"}}})
		testkit.Eventually(t, timeout, func() error {
			q, err := in.QueueDeclarePassive(in.exchange+".expired", true, false, false, false, nil)
			if err == nil && q.Messages != 1 {
				err = fmt.Errorf("got %d expired messages, want 1", q.Messages)
			}
			return err
		})
		in.run()
		r := in.rows(1)["id"]
		if r.Expiration != 20*time.Millisecond || r.RoutingKey != "orders" || r.Exchange != "" || r.Due.Sub(newClock().Now()) != time.Second {
			t.Errorf("row of the expired message: got %+v", r)
		}
	})
}

// While the database accepts no writes, the messages wait. Afterwards, the intake schedules all of them in their order.
func TestIntakeWaitsForDatabase(t *testing.T) {
	testkit.Each(t, func(t *testing.T, target testkit.Target) {
		db := openSQLite(t)
		var logs testkit.Buffer
		in := newIntake(t, target, db.box(t, newClock(), func(c *outbox.Config) { c.Logger = slog.New(slog.NewTextHandler(&logs, nil)) }))
		exec := func(statement string) {
			t.Helper()
			if _, err := db.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		exec(`ALTER TABLE reprise_outbox_relay RENAME TO gone`)
		exec(`ALTER TABLE reprise_outbox_messages RENAME TO gone_too`)
		var want []string
		for i := range 300 { // more than a worker receives at a time
			want = append(want, fmt.Sprint(i))
			in.publish("orders", amqp.Publishing{MessageId: fmt.Sprint(i), Headers: amqp.Table{"x-reprise-key": "k"}})
		}
		testkit.Eventually(t, timeout, func() bool { return strings.Contains(logs.String(), "outbox intake failed") })
		exec(`ALTER TABLE gone_too RENAME TO reprise_outbox_messages`)
		exec(`ALTER TABLE gone RENAME TO reprise_outbox_relay`)
		rows := in.rows(len(want))
		got := slices.Clone(want)
		slices.SortFunc(got, func(x, y string) int { return int(rows[x].Seq - rows[y].Seq) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("order of the rows (-want +got):\n%s", diff)
		}
		if _, found, err := in.Get(in.exchange+".failed", true); found || err != nil {
			t.Errorf("failed queue: got a message: %v (%v)", found, err)
		}
	})
}

// A failure of BeforeInsert, such as a store that is unavailable, is not the fault of the message. An invalid message is parked.
func TestIntakeRepeatsFailedBeforeInsert(t *testing.T) {
	failures := map[string]error{"late": errors.New("store is unavailable"), "bad": reprise.ErrInvalidMessage}
	in := newIntake(t, testkit.Embedded(t), openSQLite(t).box(t, newClock(), func(c *outbox.Config) {
		c.BeforeInsert = func(_ context.Context, m *reprise.Message) error {
			err := failures[m.MessageID]
			delete(failures, m.MessageID)
			return err
		}
	}))
	for _, id := range []string{"late", "bad", "good"} {
		in.publish("orders", amqp.Publishing{MessageId: id})
	}
	if d := in.get(in.exchange + ".failed"); d.MessageId != "bad" {
		t.Errorf("failed queue: got %s, %v; want the message bad", d.MessageId, d.Headers)
	}
	if rows := in.rows(2); rows["late"].MessageID == "" {
		t.Errorf("got the rows %v, want the message late", rows)
	}
}

// A message that the database refuses does not block others.
func TestIntakeParksMessageThatDatabaseRefuses(t *testing.T) {
	target := testkit.Embedded(t)
	db := openSQLite(t)
	in := newIntake(t, target, db.box(t, newClock()))
	if _, err := db.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON reprise_outbox_messages WHEN NEW.message_id = 'bad' BEGIN SELECT RAISE(ABORT, 'no such customer'); END`); err != nil {
		t.Fatal(err)
	}
	in.publish("orders", amqp.Publishing{MessageId: "bad"})
	in.publish("orders", amqp.Publishing{MessageId: "good"})
	if d := in.get(in.exchange + ".failed"); d.MessageId != "bad" || !strings.Contains(fmt.Sprint(d.Headers["x-reprise-errors"]), "no such customer") {
		t.Errorf("failed queue: got %s, %v", d.MessageId, d.Headers)
	}
	in.rows(1)
}
