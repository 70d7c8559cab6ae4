package coverart_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/coverart/coverart"
	"github.com/reprisemq/reprise/examples/coverart/internal/rehearsal"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/internal/testkit/pgtest"
)

// eventSchema contains the part of the schema of artwork-indexer that the package uses.
const eventSchema = `
CREATE SCHEMA artwork_indexer;
CREATE TYPE artwork_indexer.indexable_entity_type AS ENUM ('event', 'release');
CREATE TYPE artwork_indexer.event_queue_action AS ENUM ('index', 'copy_image', 'delete_image', 'deindex', 'noop', 'later');
CREATE TYPE artwork_indexer.event_state AS ENUM ('queued', 'running', 'failed', 'completed');
CREATE TABLE artwork_indexer.event_queue (
	id BIGSERIAL PRIMARY KEY,
	state artwork_indexer.event_state NOT NULL DEFAULT 'queued',
	entity_type artwork_indexer.indexable_entity_type NOT NULL,
	action artwork_indexer.event_queue_action NOT NULL,
	message JSONB NOT NULL,
	depends_on BIGINT[],
	created TIMESTAMP WITH TIME ZONE NOT NULL DEFAULT NOW(),
	attempts SMALLINT NOT NULL DEFAULT 0
);
CREATE TABLE artwork_indexer.event_failure_reason (
	event BIGINT NOT NULL REFERENCES artwork_indexer.event_queue (id),
	failure_reason TEXT NOT NULL
);`

const (
	oldRelease = "1ff94a0f-950e-448b-935c-9218740ca778"
	newRelease = "7c88cc10-33b8-4737-b64c-4da9d24c19d5"
)

// eventDatabase returns a database with the schema, and its URL.
func eventDatabase(t *testing.T) (*sql.DB, string) {
	t.Helper()
	server := pgtest.Server(t)
	db, remove, err := rehearsal.NewDatabase(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	execute(t, db, eventSchema)
	var name string
	if err := db.QueryRowContext(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	before, query, _ := strings.Cut(server, "?")
	return db, before[:strings.LastIndex(before, "/")+1] + name + "?" + query
}

func execute(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func states(t *testing.T, db *sql.DB) (states []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT state::text FROM artwork_indexer.event_queue ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		states = append(states, s)
	}
	return states
}

// declared deletes the queues of the design before and after the test, declares them, and returns a client and a channel.
func declared(t *testing.T, b testkit.Target, c coverart.Design) (*reprise.Client, *amqp.Channel) {
	t.Helper()
	testkit.Alone(t, b, preset.CoverArtExchange)
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	design := c.Topology()
	remove := func() (err error) {
		for _, q := range design.Queues {
			_, deleteErr := ch.QueueDelete(q.Name, false, false, false)
			err = errors.Join(err, deleteErr)
		}
		for _, x := range design.Exchanges {
			err = errors.Join(err, ch.ExchangeDelete(x.Name, false, false))
		}
		return err
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	client, err := reprise.Dial(t.Context(), b.URL, nil)
	if err == nil {
		err = client.Declare(t.Context(), design)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(client.Close(context.WithoutCancel(t.Context())), remove(), conn.Close()); err != nil {
			t.Error(err)
		}
	})
	return client, ch
}

// drain returns the messages in a work queue, as "ID: body".
func drain(t *testing.T, ch *amqp.Channel, key string) (messages []string) {
	t.Helper()
	for {
		d, ok, err := ch.Get(preset.CoverArtExchange+"."+key, true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return messages
		}
		messages = append(messages, fmt.Sprintf("%s: %s", d.MessageId, d.Body))
	}
}

// Each action becomes a message of the design. An event waits until its parents are completed, and an event that cannot
// be published does not stop the others.
func TestEventSourcePublishesDueEvents(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		db, _ := eventDatabase(t)
		client, ch := declared(t, b, coverart.Design{})
		execute(t, db, `INSERT INTO artwork_indexer.event_queue (entity_type, action, message, depends_on) VALUES
			('release', 'copy_image', '{"artwork_id": 12, "old_gid": "`+oldRelease+`", "new_gid": "`+newRelease+`", "suffix": "png"}', NULL),
			('release', 'delete_image', '{"artwork_id": 12, "gid": "`+oldRelease+`", "suffix": "png"}', '{1}'),
			('release', 'index', '{"gid": "`+newRelease+`"}', '{2}'),
			('release', 'deindex', '{"gid": "`+oldRelease+`"}', '{}'),
			('release', 'noop', '{}', NULL),
			('release', 'later', '{}', NULL),
			('release', 'index', '"no object"', NULL),
			('event', 'index', '{"gid": "`+newRelease+`"}', NULL)`)
		source := &coverart.EventSource{DB: db, Publisher: client}
		if n, err := source.PublishDue(t.Context()); n != 2 || err != nil {
			t.Fatalf("got %d events, %v, want 2", n, err)
		}
		want := []string{"running", "queued", "queued", "running", "completed", "failed", "failed", "queued"}
		if diff := cmp.Diff(want, states(t, db)); diff != "" {
			t.Errorf("states: -want +got:\n%s", diff)
		}
		got := append(drain(t, ch, "move"), drain(t, ch, "delete")...)
		if diff := cmp.Diff([]string{"artwork-indexer-1: 12\n" + oldRelease + "\n" + newRelease + "\npng", "artwork-indexer-4: index.json\n" + oldRelease + "\n"}, got); diff != "" {
			t.Errorf("messages: -want +got:\n%s", diff)
		}
		var reasons int
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM artwork_indexer.event_failure_reason WHERE event IN (6, 7)").Scan(&reasons); err != nil || reasons != 2 {
			t.Errorf("reasons of failed events: got %d, %v, want 2", reasons, err)
		}
	})
}

// The handler completes the event, and only after a success. Then the children of the event are due.
func TestCompletesAfterSuccess(t *testing.T) {
	db, _ := eventDatabase(t)
	execute(t, db, `INSERT INTO artwork_indexer.event_queue (entity_type, action, message, depends_on) VALUES
		('release', 'index', '{"gid": "`+oldRelease+`"}', NULL), ('release', 'index', '{"gid": "`+newRelease+`"}', '{1}')`)
	design := coverart.Design{RetryDelay: 20 * time.Millisecond}
	client, _ := declared(t, testkit.Embedded(t), design)
	var handled []string
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
		Queue: preset.CoverArtIndexQueue, Strategy: design.Strategy(),
		Handler: coverart.Completes(db, reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			handled = append(handled, fmt.Sprintf("%s at attempt %d", m.Body, m.Attempt))
			if len(handled) == 1 {
				return errors.New("503 SlowDown")
			}
			return nil
		})),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { (&coverart.EventSource{DB: db, Publisher: client, Poll: 5 * time.Millisecond}).Run(ctx) })
	all.Go(func() {
		if err := worker.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, time.Minute, func() bool { return slices.Equal(states(t, db), []string{"completed", "completed"}) })
	stop()
	all.Wait()
	if diff := cmp.Diff([]string{oldRelease + " at attempt 1", oldRelease + " at attempt 2", newRelease + " at attempt 1"}, handled); diff != "" {
		t.Errorf("handled: -want +got:\n%s", diff)
	}
}

// killer is a Publisher that kills the process after the confirms.
type killer struct{ *reprise.Client }

func (k killer) PublishBatch(ctx context.Context, messages []*reprise.Message) error {
	if err := k.Client.PublishBatch(ctx, messages); err != nil {
		return err
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	return self.Kill()
}

// After a kill between the confirms and the commit, each event is published again under its message ID: twice, and never
// not at all.
func TestKillBetweenConfirmAndCommit(t *testing.T) {
	if url := os.Getenv("EVENTS_TEST_BROKER"); url != "" { // in the process to kill
		db, err := sql.Open("pgx", os.Getenv("EVENTS_TEST_DATABASE"))
		if err != nil {
			t.Fatal(err)
		}
		client, err := reprise.Dial(t.Context(), url, nil)
		if err != nil {
			t.Fatal(err)
		}
		n, err := (&coverart.EventSource{DB: db, Publisher: killer{client}}).PublishDue(t.Context())
		t.Fatalf("process must be killed: got %d, %v", n, err)
	}
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		db, address := eventDatabase(t)
		client, ch := declared(t, b, coverart.Design{})
		execute(t, db, `INSERT INTO artwork_indexer.event_queue (entity_type, action, message)
			SELECT 'release', 'index', jsonb_build_object('gid', gen_random_uuid()) FROM generate_series(1, 250)`)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKillBetweenConfirmAndCommit$")
		cmd.Env = append(os.Environ(), "EVENTS_TEST_BROKER="+b.URL, "EVENTS_TEST_DATABASE="+address)
		out, err := cmd.CombinedOutput()
		if end, ok := errors.AsType[*exec.ExitError](err); !ok || end.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("process: got %v, want killed\n%s", err, out)
		}
		if all := states(t, db); slices.ContainsFunc(all, func(s string) bool { return s != "queued" }) {
			t.Errorf("states after the kill: got %v, want all queued", all)
		}
		source := &coverart.EventSource{DB: db, Publisher: client}
		testkit.Eventually(t, time.Minute, func() bool { // the server notices the end of the killed session
			if _, err := source.PublishDue(t.Context()); err != nil {
				t.Error(err)
			}
			return !slices.Contains(states(t, db), "queued")
		})
		copies := map[string]int{}
		for _, m := range drain(t, ch, "index") {
			copies[m]++
		}
		twice := 0
		for _, n := range copies {
			if n == 2 {
				twice++
			}
		}
		if len(copies) != 250 || twice != 100 {
			t.Errorf("got %d events, %d of them twice, want 250 and the batch of 100 twice", len(copies), twice)
		}
	})
}
