package testkit

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Alone waits until no other test on the broker is alone with the same name, and
// keeps others waiting until t ends. It is for tests whose queues have names that
// they cannot choose: packages are tested at the same time, on the same RabbitMQ.
//
// The lock is an exclusive queue: it goes with its connection, even that of a
// test that was killed.
func Alone(t testing.TB, b Target, name string) {
	t.Helper()
	conn, err := amqp.Dial(b.URL)
	if err != nil {
		t.Fatalf("alone with %s on %s: %v", name, b.Name, err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the broker may be gone already
	Eventually(t, 5*time.Minute, func() error {
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		// 405 RESOURCE_LOCKED, and the channel is closed, while somebody has it.
		_, err = ch.QueueDeclare("reprise.alone."+name, false, false, true, false, nil)
		return err
	})
}
