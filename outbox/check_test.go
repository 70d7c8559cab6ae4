package outbox_test

import (
	"database/sql"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/outbox"
)

func wantCheck(t *testing.T, db database, want string, tables ...outbox.Table) {
	t.Helper()
	err := outbox.Check(t.Context(), db.DB, outbox.Config{Dialect: db.dialect}, tables...)
	if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("Check: got %v, want %q", err, want)
	}
}

// Check reports what would fail later, and changes nothing.
func TestCheck(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		count := func(want int) {
			t.Helper()
			n := -1
			err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM reprise_outbox_messages`).Scan(&n)
			if n != want {
				t.Errorf("rows of reprise_outbox_messages: got %d (%v), want %d (-1: no table)", n, err, want)
			}
		}
		wantCheck(t, db, "")
		count(-1)
		schedule(t, db.box(t, nil), message("1"))
		events(t, db)
		run(t, db, `INSERT INTO events (body) VALUES ('a')`)
		wantCheck(t, db, "", byBody, outbox.Table{Name: "events"})
		count(1)
		wantRows(t, db, 1)
		wantCheck(t, db, `table "nothing"`, byBody, outbox.Table{Name: "nothing"})
		wantCheck(t, db, `column "topic" must be an integer`, outbox.Table{Name: "events", IDColumn: "topic"})
		if err := outbox.Check(t.Context(), db.DB, outbox.Config{Dialect: db.dialect}, outbox.Table{Name: "nothing"}); strings.Contains(err.Error(), "restart") {
			t.Errorf("missing table: got the advice for tables of the box: %v", err)
		}
		wantCheck(t, db, "topik", outbox.Table{Name: "events", RoutingKeyColumn: "topik"})
		wantCheck(t, db, "Table.Name must not begin with the prefix", outbox.Table{Name: "reprise_outbox_messages"})
		run(t, db, `UPDATE reprise_outbox_about SET value = '99'`)
		wantCheck(t, db, "schema version must be 1: got 99")
	})
}

func TestCheckReadOnly(t *testing.T) {
	db := openSQLite(t)
	db.box(t, nil)
	read, err := sql.Open("sqlite", db.source+"&mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	db.DB = read
	wantCheck(t, db, "readonly database")
}

func TestIntakeCheck(t *testing.T) {
	testkit.Each(t, func(t *testing.T, target testkit.Target) {
		client, err := reprise.Dial(t.Context(), target.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(t.Context())
		cfg := outbox.IntakeConfig{Exchange: testkit.Name(t, "schedule")}
		if err := cfg.Check(t.Context(), client); err != nil {
			t.Errorf("nothing exists: %v", err)
		}
		if err := client.CheckExchange(t.Context(), cfg.Exchange); err == nil {
			t.Error("the exchange exists after the check")
		}
		conn, err := amqp.Dial(target.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err == nil {
			err = ch.ExchangeDeclare(cfg.Exchange, "direct", true, false, false, false, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer ch.ExchangeDelete(cfg.Exchange, false, false)
		if err := cfg.Check(t.Context(), client); err == nil || !strings.Contains(err.Error(), "already exists with a different type") {
			t.Errorf("an exchange of another type: got %v", err)
		}
	})
}
