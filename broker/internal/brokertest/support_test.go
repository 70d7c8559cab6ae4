package brokertest

import (
	"context"
	"net"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/internal/testhook"
	"github.com/reprisemq/reprise/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// start starts a broker for the test, and returns the broker and an in-memory connection to it.
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
		Dial: func(network, addr string) (net.Conn, error) {
			return b.DialContext(context.Background(), network, addr)
		},
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

// nodeOf returns the node of a broker.
func nodeOf(b *broker.Broker) *node.Node {
	return testhook.Of(b).(interface{ Node() *node.Node }).Node()
}
