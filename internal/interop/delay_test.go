package interop

import (
	"context"
	"database/sql"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/outbox"
)

// python/delay.py publishes messages with x-delay to the exchange of an outbox.Intake.
func TestPythonClientDelays(t *testing.T) {
	t.Parallel()
	if exec.Command(python, "-c", "import pika").Run() != nil {
		t.Skip("pika not found (run apt-get install python3-pika, or make test)")
	}
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "box.db")+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		client, err := reprise.Dial(t.Context(), b.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.Background())
		box, err := outbox.Open(t.Context(), db, outbox.Config{Dialect: outbox.SQLite})
		if err != nil {
			t.Fatal(err)
		}
		exchange := testkit.Name(t, "schedule")
		in, err := outbox.NewIntake(box, client, outbox.IntakeConfig{Exchange: exchange})
		if err != nil {
			t.Fatal(err)
		}
		relay, err := outbox.NewRelay(box, client, outbox.RelayConfig{})
		if err != nil {
			t.Fatal(err)
		}
		running, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, run := range []func(context.Context) error{in.Run, relay.Run} {
			wg.Go(func() {
				if err := run(running); err != nil {
					t.Error(err)
				}
			})
		}
		defer wg.Wait()
		defer stop()
		conn, err := amqp.Dial(b.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		testkit.Eventually(t, within, func() error { // the exchange and its binding
			ch, err := conn.Channel()
			if err != nil {
				return err
			}
			defer ch.Close()
			q, err := ch.QueueDeclarePassive(exchange, true, false, false, false, nil)
			if err == nil && q.Consumers == 0 {
				return errors.New("queue has no consumer")
			}
			return err
		})
		got := run(t, "", python, filepath.Join("python", "delay.py"), strings.TrimSuffix(b.URL, "/"), exchange, testkit.Name(t, "q"))
		if want := "first -500 due text/plain\nsecond -1500 due text/plain\n"; got != want {
			t.Errorf("output: got %q, want %q", got, want)
		}
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		stop()
		wg.Wait()
		for _, name := range []string{exchange, exchange + ".expired", exchange + ".failed"} {
			if _, err := ch.QueueDelete(name, false, false, false); err != nil {
				t.Error(err)
			}
			if err := ch.ExchangeDelete(name, false, false); err != nil {
				t.Error(err)
			}
		}
	})
}
