package ledger_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/archive/ledger"
	"github.com/reprisemq/reprise/internal/testkit"
)

// An unexpected value in the figures of a queue makes only these figures unknown.
func TestManagementContainsUnexpectedValues(t *testing.T) {
	for odd, want := range map[string]ledger.Figures{
		`"messages":3,"messages_unacknowledged":1,"message_stats":[]`:                    {Messages: 3, Unacked: 1},
		`"messages":3,"messages_unacknowledged":1`:                                       {Messages: 3, Unacked: 1},
		`"messages":3,"messages_unacknowledged":1,"message_stats":{"publish":4,"ack":1}`: {Messages: 3, Unacked: 1, Published: 4, Taken: 1},
		`"messages":null,"messages_unacknowledged":1`:                                    {Unknown: true},
		`"messages":3`: {Unknown: true},
		`"messages":"3","messages_unacknowledged":1`:                                      {Unknown: true},
		`"messages":3,"messages_unacknowledged":1,"message_stats":{"publish":[]}`:         {Unknown: true},
		`"messages":3,"messages_unacknowledged":1,"message_stats":{"deliver_no_ack":1e9}`: {Unknown: true},
		`"messages":3,"messages_unacknowledged":1,"message_stats":"none"`:                 {Unknown: true},
	} {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/api/overview" {
				_, _ = w.Write([]byte(`{"rates_mode":["basic"]}`))
				return
			}
			_ = json.NewEncoder(w).Encode([]json.RawMessage{
				json.RawMessage(`{"name":"odd",` + odd + `}`), json.RawMessage(`{"name":"orders","messages":9,"messages_unacknowledged":0,"message_stats":{"publish":9}}`),
			})
		}))
		got, err := management(t, api.URL).Queues(t.Context())
		api.Close()
		if err != nil || got["odd"] != want || got["orders"] != (ledger.Figures{Published: 9, Messages: 9}) {
			t.Errorf("{%s}: got %+v, error %v; want %+v", odd, got, err, want)
		}
	}
}

// The figures of a queue that has only had a basic.get do not affect the figures of other queues.
func TestManagementAfterBasicGet(t *testing.T) {
	eachLive(t, func(t *testing.T, b live) {
		conn, err := amqp.Dial(b.url)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		queue := testkit.Name(t, "ledger.got")
		if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = ch.QueueDelete(queue, false, false, false) }()
		if _, _, err := ch.Get(queue, true); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, time.Minute, func() error {
			all, err := b.api.Queues(t.Context())
			if err != nil {
				return err
			}
			if f, found := all[queue]; !found || f != (ledger.Figures{}) {
				return fmt.Errorf("figures of the queue: got %+v, want 0 and known", f)
			}
			return nil
		})
	})
}

// A queue whose figures are unknown for a time, for example because its node is down, is not a queue that has lost its
// messages.
func TestTakeOmitsSamplesWithUnknownFigures(t *testing.T) {
	for _, queue := range []func(*simulation) string{
		func(d *simulation) string { return d.queue },
		func(d *simulation) string { return d.queue + ".failed" },
		func(d *simulation) string { return d.queue + ".wait.1000-1250" },
	} {
		d := newSimulation(t, openSQLite(t))
		write, _ := d.process(t, "worker-1")
		name := queue(d)
		d.broker[d.queue] = ledger.Figures{}
		d.broker[name] = ledger.Figures{Published: 5, Messages: 5}
		write(0)
		d.pass(t, 5)
		if line := d.line(t); line.State != ledger.Balanced {
			t.Fatalf("%q: got %+v, want the state balanced", name, line)
		}
		d.broker[name] = ledger.Figures{Unknown: true}
		for range 8 {
			d.pass(t, 1)
			write(0)
			if line := d.line(t); line.State == ledger.Differs {
				t.Fatalf("%q: unknown figures: got %+v, want no discrepancy", name, line)
			}
		}
		if line := d.line(t); line.State != ledger.Unknown {
			t.Errorf("%q: unknown figures for 2 minutes: got the state %s, want unknown", name, line.State)
		}
		d.broker[name] = ledger.Figures{Published: 5, Messages: 5}
		d.pass(t, 4)
		if line := d.line(t); line.State != ledger.Balanced {
			t.Errorf("%q: known figures again: got %+v, want the state balanced", name, line)
		}
	}
}
