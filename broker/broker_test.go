package broker_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/reprisemq/reprise/broker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a broker for the test and returns a connection to it that involves no socket.
func start(t *testing.T, config broker.Config) (*broker.Broker, *amqp.Connection) {
	t.Helper()
	b, err := broker.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Shutdown(context.Background()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return b, dial(t, b)
}

func dial(t *testing.T, b *broker.Broker) *amqp.Connection {
	t.Helper()
	conn, err := amqp.DialConfig("amqp://guest:guest@memory/", amqp.Config{
		Heartbeat: time.Minute,
		Dial:      func(network, addr string) (net.Conn, error) { return b.DialContext(context.Background(), network, addr) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func channel(t *testing.T, conn *amqp.Connection) *amqp.Channel {
	t.Helper()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// The whole life of a retry, with nothing but virtual time between failing and coming back four hours later.
func TestFourHoursInAWaitQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, conn := start(t, broker.Config{})
		ch := channel(t, conn)
		must(t, declare(ch, "work", amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "wait"}))
		must(t, declare(ch, "wait", amqp.Table{
			"x-message-ttl": 14400000, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work",
		}))
		deliveries, err := ch.Consume("work", "", false, false, false, false, nil)
		must(t, err)
		must(t, ch.Publish("", "work", true, false, amqp.Publishing{Body: []byte("release"), MessageId: "1"}))

		began := time.Now()
		first := <-deliveries
		must(t, first.Reject(false))
		again := <-deliveries
		if waited := time.Since(began); waited != 4*time.Hour {
			t.Errorf("came back after %v, want exactly 4 h", waited)
		}
		if again.MessageId != "1" || string(again.Body) != "release" {
			t.Errorf("came back as %q %q", again.MessageId, again.Body)
		}
		deaths := again.Headers["x-death"].([]any)
		if len(deaths) != 2 || deaths[0].(amqp.Table)["reason"] != "expired" || deaths[1].(amqp.Table)["reason"] != "rejected" {
			t.Errorf("x-death is %v", deaths)
		}
		must(t, again.Ack(false))
	})
}

func declare(ch *amqp.Channel, name string, args amqp.Table) error {
	_, err := ch.QueueDeclare(name, true, false, false, false, args)
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
