package brokertest

import (
	"errors"
	"net"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/internal/access"
)

func dialAs(t *testing.T, b *broker.Broker, user, vhost string) (*amqp.Connection, error) {
	t.Helper()
	conn, err := amqp.DialConfig("amqp://"+user+":pw@memory/", amqp.Config{
		Vhost: vhost,
		Dial:  func(network, addr string) (net.Conn, error) { return b.DialContext(t.Context(), network, addr) },
	})
	if err == nil {
		t.Cleanup(func() { _ = conn.Close() })
	}
	return conn, err
}

// If a user does not have the permission for an operation, the error message is the same as in RabbitMQ 4.3.
func TestPermissions(t *testing.T) {
	b, _ := start(t, broker.Config{})
	control := nodeOf(b).Access
	for _, name := range []string{"ada", "bob"} {
		must(t, control.SetUser(access.User{Name: name, Hash: access.HashPassword("pw")}))
	}
	must(t, control.SetPermission(access.Permission{User: "ada", VHost: "/", Configure: "^ada-.*", Write: "^ada-.*", Read: "^ada-.*"}))

	_, err := dialAs(t, b, "bob", "/")
	refusal(t, err, 530, "NOT_ALLOWED - access to vhost '/' refused for user 'bob'")
	_, err = dialAs(t, b, "ada", "nosuch")
	refusal(t, err, 530, "NOT_ALLOWED - vhost nosuch not found")

	conn, err := dialAs(t, b, "ada", "/")
	must(t, err)
	must(t, declare(channel(t, conn), "ada-q", nil))
	for what, try := range map[string]func(*amqp.Channel) error{
		"configure access to queue 'other'": func(ch *amqp.Channel) error { return declare(ch, "other", nil) },
		"configure access to exchange 'other'": func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare("other", "direct", true, false, false, false, nil)
		},
		"write access to exchange 'amq.direct'": func(ch *amqp.Channel) error {
			return declare(ch, "ada-q2", amqp.Table{"x-dead-letter-exchange": "amq.direct"})
		},
		"write access to exchange 'amq.default'": func(ch *amqp.Channel) error {
			return published(ch, "", "ada-q")
		},
		"read access to exchange 'amq.direct'": func(ch *amqp.Channel) error {
			return ch.QueueBind("ada-q", "k", "amq.direct", false, nil)
		},
		"read access to queue 'other'": func(ch *amqp.Channel) error { _, _, err := ch.Get("other", true); return err },
		"write access to exchange 'amq.topic'": func(ch *amqp.Channel) error {
			return ch.ExchangeBind("amq.topic", "k", "ada-x", false, nil)
		},
	} {
		refusal(t, try(channel(t, conn)), 403, "ACCESS_REFUSED - "+what+" in vhost '/' refused for user 'ada'")
	}

	// Removing a permission takes effect immediately.
	ch := channel(t, conn)
	must(t, declare(ch, "ada-q", nil))
	must(t, control.SetPermission(access.Permission{User: "ada", VHost: "/"}))
	refusal(t, declare(ch, "ada-q", nil), 403,
		"ACCESS_REFUSED - configure access to queue 'ada-q' in vhost '/' refused for user 'ada'")
}

// published publishes a message and returns the error with which the broker closes the channel.
func published(ch *amqp.Channel, exchange, key string) error {
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := ch.Publish(exchange, key, false, false, amqp.Publishing{}); err != nil {
		return err
	}
	select {
	case e := <-closed:
		return e
	case <-time.After(2 * time.Minute):
		return errors.New("the channel stays open")
	}
}

func refusal(t *testing.T, err error, code int, text string) {
	t.Helper()
	e, ok := errors.AsType[*amqp.Error](err)
	if !ok || e.Code != code || e.Reason != text {
		t.Errorf("got  %v\nwant %d %s", err, code, text)
	}
}

// Virtual hosts are isolated from each other. Deleting a virtual host closes its connections.
func TestVirtualHosts(t *testing.T) {
	b, conn := start(t, broker.Config{})
	control := nodeOf(b).Access
	if !nodeOf(b).AddVHost("other") || nodeOf(b).AddVHost("other") {
		t.Error("AddVHost reports the wrong result for a new or an existing virtual host")
	}
	must(t, control.SetUser(access.User{Name: "ada", Hash: access.HashPassword("pw")}))
	must(t, control.SetPermission(access.Permission{User: "ada", VHost: "other", Configure: ".*", Write: ".*", Read: ".*"}))
	other, err := dialAs(t, b, "ada", "other")
	must(t, err)
	must(t, declare(channel(t, other), "q", nil))
	if _, err := channel(t, conn).QueueDeclarePassive("q", true, false, false, false, nil); err == nil {
		t.Error("queue exists in another virtual host")
	}

	closed := other.NotifyClose(make(chan *amqp.Error, 1))
	nodeOf(b).DeleteVHost("other")
	if e := <-closed; e == nil || e.Code != 320 {
		t.Errorf("connection closed with %v, want code 320", e)
	}
	_, err = dialAs(t, b, "ada", "other")
	refusal(t, err, 530, "NOT_ALLOWED - vhost other not found")
}

// The pseudo-queues of direct reply-to do not count towards MaxQueues.
func TestMaxQueuesOmitsReplyQueues(t *testing.T) {
	_, conn := start(t, broker.Config{MaxQueues: 1})
	ch := channel(t, conn)
	_, err := ch.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, nil)
	must(t, err)
	must(t, declare(ch, "q", nil))
	refusal(t, declare(ch, "one-more", nil), 406,
		"PRECONDITION_FAILED - cannot declare queue 'one-more': queue limit in vhost '/' (1) is reached")
}

func TestLimits(t *testing.T) {
	b, conn := start(t, broker.Config{MaxConnections: 2, MaxQueues: 1})
	must(t, declare(channel(t, conn), "q", nil))
	refusal(t, declare(channel(t, conn), "one-more", nil), 406,
		"PRECONDITION_FAILED - cannot declare queue 'one-more': queue limit in vhost '/' (1) is reached")
	must(t, declare(channel(t, conn), "q", nil)) // succeeds, because the queue exists
	dial(t, b)
	if _, err := dialAs(t, b, "guest", "/"); err == nil {
		t.Error("broker accepted more connections than MaxConnections")
	}
}
