package managementtest

import (
	"io"
	"net/http"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
)

// Lists of channels and consumers do not wait for a queue that waits for one of these channels.
func TestListsWhileMessagesArrive(t *testing.T) {
	b, api := testkit.EmbeddedManaged(t, broker.Config{})
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("q", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	const messages = 100_000
	deliveries, err := ch.Consume("q", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	publisher, err := other.Channel()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range messages {
			if err := publisher.Publish("", "q", false, false, amqp.Publishing{}); err != nil {
				t.Error(err)
				return
			}
		}
		for range messages {
			<-deliveries
		}
	}()
	client := http.Client{Timeout: time.Minute}
	for listed := false; !listed; {
		for _, path := range []string{"/api/channels", "/api/consumers", "/api/queues"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.SetBasicAuth("guest", "guest")
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err) // after a deadlock, the broker answers no more
			}
			if answer.StatusCode != http.StatusOK {
				t.Errorf("%s: status %s", path, answer.Status)
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
		select {
		case <-done:
			listed = true
		default:
		}
	}
}
