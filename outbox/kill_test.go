package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/idempotent"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/outbox"
	"github.com/reprisemq/reprise/topology"
)

var kills = flag.Int("outbox.kills", 4, "number of times that each test kills its process, for each database and broker")

// childVariable is the environment variable with the childConfig of a process that TestMain runs instead of tests.
const childVariable = "REPRISE_OUTBOX_CHILD"

type childConfig struct {
	Driver, Source string
	Dialect        outbox.Dialect
	URL            string
	Payments       string // queue of payments to take, if any
	Paid           string // queue of the events
	Table          bool   // publish the rows of the table events to Paid as well
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		var c childConfig
		err := json.Unmarshal([]byte(text), &c)
		if err == nil {
			err = c.run(context.Background())
		}
		fmt.Fprintln(os.Stderr, err) // it ends only by an error, or killed
		os.Exit(1)
	}
	testkit.Main(m)
}

// run publishes the messages of a box, and takes payments.
func (c childConfig) run(ctx context.Context) error {
	db, err := sql.Open(c.Driver, c.Source)
	if err != nil {
		return err
	}
	box, err := outbox.Open(ctx, db, outbox.Config{Dialect: c.Dialect})
	if err != nil {
		return err
	}
	client, err := reprise.Dial(ctx, c.URL, nil)
	if err != nil {
		return err
	}
	relayConfig := outbox.RelayConfig{Batch: 20, Poll: 5 * time.Millisecond}
	if c.Table {
		relayConfig.Tables = []outbox.Table{{Name: "events", BodyColumn: "body", MessageIDColumn: "topic", Message: reprise.Message{RoutingKey: c.Paid}}}
	}
	relay, err := outbox.NewRelay(box, client, relayConfig)
	if err != nil {
		return err
	}
	if c.Payments != "" {
		store, err := idempotent.OpenSQL(ctx, db, idempotent.SQLConfig{Dialect: c.Dialect})
		if err != nil {
			return err
		}
		take, err := idempotent.Tx(store, idempotent.TxConfig{}, func(ctx context.Context, tx *sql.Tx, m *reprise.Delivery) error {
			if _, err := tx.ExecContext(ctx, `INSERT INTO payments (id) VALUES (`+m.MessageID+`)`); err != nil {
				return err
			}
			return box.Insert(ctx, tx, &outbox.Message{Message: reprise.Message{RoutingKey: c.Paid, MessageID: "paid " + m.MessageID}})
		})
		if err != nil {
			return err
		}
		worker, err := reprise.NewWorker(client, reprise.WorkerConfig{Queue: c.Payments, Handler: take, Concurrency: 4, CrashLimit: -1})
		if err != nil {
			return err
		}
		go func() { fmt.Fprintln(os.Stderr, worker.Run(ctx)) }()
	}
	return relay.Run(ctx)
}

// victim is a process that is killed again and again, while the test receives its messages.
type victim struct {
	t      *testing.T
	db     database
	cfg    childConfig
	cmd    *exec.Cmd
	stderr testkit.Buffer
	got    <-chan amqp.Delivery

	seen []string // ids of the received messages
}

func (v *victim) start() {
	v.t.Helper()
	text, err := json.Marshal(v.cfg)
	if err != nil {
		v.t.Fatal(err)
	}
	v.cmd = exec.Command(os.Args[0])
	v.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	v.cmd.Stderr = &v.stderr
	if err := v.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
}

// kill kills the process (SIGKILL), and ends its lease, for which another process would wait.
func (v *victim) kill() {
	v.t.Helper()
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
	if _, err := v.db.Exec(`UPDATE reprise_outbox_relay SET until = 0`); err != nil {
		v.t.Fatal(err)
	}
}

// receive receives n messages.
func (v *victim) receive(n int) {
	v.t.Helper()
	deadline := time.After(timeout)
	for range n {
		select {
		case d := <-v.got:
			v.seen = append(v.seen, d.MessageId)
		case <-deadline:
			v.t.Fatalf("got %d messages, want more; output of the process: %s", len(v.seen), v.stderr.String())
		}
	}
}

// finish lets the process run until all wanted messages have arrived and the box is empty.
func (v *victim) finish(box *outbox.Box, want []string) {
	v.t.Helper()
	v.start()
	missing := map[string]bool{}
	for _, id := range want {
		missing[id] = true
	}
	for _, id := range v.seen {
		delete(missing, id)
	}
	testkit.Eventually(v.t, timeout, func() error {
		for more := true; more; {
			select {
			case d := <-v.got:
				v.seen = append(v.seen, d.MessageId)
				delete(missing, d.MessageId)
			case <-time.After(20 * time.Millisecond):
				more = false
			}
		}
		rows, err := box.List(v.t.Context(), outbox.Filter{Limit: 1})
		if err == nil && len(missing)+len(rows) > 0 {
			err = fmt.Errorf("%d messages are lost, or have not left; output of the process: %s", len(missing), v.stderr.String())
		}
		return err
	})
	v.kill()
}

// check reports messages that are missing, and messages that must not have left. It returns the number of duplicates.
func (v *victim) check(want []string) (duplicates int) {
	v.t.Helper()
	times := map[string]int{}
	for _, id := range v.seen {
		times[id]++
	}
	for _, id := range want {
		if times[id] == 0 {
			v.t.Errorf("message %s is lost", id)
		}
		duplicates += max(0, times[id]-1)
		delete(times, id)
	}
	for id := range times {
		v.t.Errorf("message %s left, but was rolled back, canceled, or never inserted", id)
	}
	return duplicates
}

// eachVictim runs test with each database and broker.
func eachVictim(t *testing.T, test func(t *testing.T, v *victim, ch *amqp.Channel)) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped with -short (kills processes)")
	}
	testkit.Each(t, func(t *testing.T, target testkit.Target) {
		eachDatabase(t, func(t *testing.T, db database) {
			conn, err := amqp.Dial(target.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ch, err := conn.Channel()
			if err != nil {
				t.Fatal(err)
			}
			v := &victim{t: t, db: db, cfg: childConfig{Driver: db.driver, Source: db.source, Dialect: db.dialect, URL: target.URL, Paid: testkit.Name(t, "paid")}}
			if _, err := ch.QueueDeclare(v.cfg.Paid, true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if _, err := ch.QueueDelete(v.cfg.Paid, false, false, false); err != nil {
					t.Error(err)
				}
			}()
			if v.got, err = ch.Consume(v.cfg.Paid, "", true, false, false, false, nil); err != nil {
				t.Fatal(err)
			}
			test(t, v, ch)
		})
	})
}

// A relay is killed between reading, publishing, the confirm and the deletion of messages, and between reading and deleting rows of a
// table of another program.
func TestKilledProcessLosesNothing(t *testing.T) {
	eachVictim(t, func(t *testing.T, v *victim, _ *amqp.Channel) {
		box := v.db.box(t, nil)
		events(t, v.db)
		v.cfg.Table = true
		var want []string
		send := func(id, key string, in time.Duration) *outbox.Message {
			m := message(id)
			m.RoutingKey, m.Key, m.In = v.cfg.Paid, key, in
			return m
		}
		for round := range *kills {
			for i := range 40 {
				id := fmt.Sprintf("%d/%d", round, i)
				tx := begin(t, v.db)
				insert(t, box, tx, send(id, []string{"", "k"}[i%2], 0))
				run(t, tx, `INSERT INTO events (topic) VALUES ('`+id+` row')`)
				if i%8 == 7 {
					if err := tx.Rollback(); err != nil {
						t.Fatal(err)
					}
					continue
				}
				commit(t, tx)
				want = append(want, id, id+" row")
			}
			canceled := fmt.Sprint("canceled ", round)
			schedule(t, box, send(canceled, "", time.Hour))
			cancel(t, box, outbox.Filter{MessageID: canceled}, outbox.Result{Done: 1})
			v.start()
			v.receive(1 + rand.IntN(30))
			v.kill()
		}
		v.finish(box, want)
		t.Logf("%d messages, %d kills, %d duplicates", len(want), *kills, v.check(want))
		var keyed []string // first copies
		for _, id := range v.seen {
			if i := slices.Index(want, id); i >= 0 && !slices.Contains(keyed, id) && keyOf(id) {
				keyed = append(keyed, id)
			}
		}
		if !slices.IsSortedFunc(keyed, func(x, y string) int { return slices.Index(want, x) - slices.Index(want, y) }) {
			t.Errorf("messages of the key left in the order %v", keyed)
		}
	})
}

// keyOf reports whether a message of TestKilledProcessLosesNothing has a key.
func keyOf(id string) bool { return strings.ContainsRune("13579", rune(id[len(id)-1])) }

// A payment is taken in the transaction in which its event is inserted. The process is killed, and each payment is published twice.
// Nevertheless, each payment is taken once, and has one event, perhaps in several copies with the same id.
func TestKilledProcessTakesPaymentsOnce(t *testing.T) {
	eachVictim(t, func(t *testing.T, v *victim, ch *amqp.Channel) {
		v.cfg.Payments = testkit.Name(t, "payments")
		if _, err := v.db.Exec(`CREATE TABLE payments (id INTEGER NOT NULL)`); err != nil {
			t.Fatal(err)
		}
		box := v.db.box(t, nil)
		client, err := reprise.Dial(t.Context(), v.cfg.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.Background())
		if err := client.Declare(t.Context(), topology.Buckets{}.Topology(v.cfg.Payments)); err != nil {
			t.Fatal(err)
		}
		defer func() {
			for _, queue := range []string{v.cfg.Payments, v.cfg.Payments + ".failed"} {
				if _, err := ch.QueueDelete(queue, false, false, false); err != nil {
					t.Error(err)
				}
			}
		}()
		var want []string
		for round := range *kills {
			var batch []*reprise.Message
			for i := range 30 {
				id := fmt.Sprint(round*30 + i)
				want = append(want, "paid "+id)
				for range 2 {
					batch = append(batch, &reprise.Message{RoutingKey: v.cfg.Payments, MessageID: id})
				}
			}
			if err := client.PublishBatch(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			v.start()
			v.receive(1 + rand.IntN(20))
			v.kill()
		}
		v.finish(box, want)
		var taken, different int
		if err := v.db.QueryRow(`SELECT count(*), count(DISTINCT id) FROM payments`).Scan(&taken, &different); err != nil || taken != len(want) || different != len(want) {
			t.Errorf("got %d payments of %d different ids (%v), want %d", taken, different, err, len(want))
		}
		t.Logf("%d payments, %d kills, %d duplicates of events", len(want), *kills, v.check(want))
	})
}
