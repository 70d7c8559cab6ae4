package testkit

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Alone acquires the lock with the given name on the broker, and holds it until the end of t. Use it for tests with fixed
// queue names, because several packages are tested at the same time on the same RabbitMQ.
//
// The lock is an exclusive queue. It disappears with its connection, even if the test was killed.
func Alone(t testing.TB, b Target, name string) {
	t.Helper()
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatalf("cannot lock %s on %s: %v", name, b.Name, err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the broker may have stopped
	Eventually(t, 5*time.Minute, func() error {
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		// While another test holds the lock, the broker responds with 405 RESOURCE_LOCKED and closes the channel.
		_, err = ch.QueueDeclare("reprise.alone."+name, false, false, true, false, nil)
		return err
	})
}
