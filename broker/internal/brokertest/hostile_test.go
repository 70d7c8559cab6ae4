package brokertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// exhaustedListener is a listener whose first Accept fails because of too many open files.
type exhaustedListener struct {
	net.Listener
	once chan struct{}
}

func (l exhaustedListener) Accept() (net.Conn, error) {
	select {
	case <-l.once:
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	default:
		return l.Listener.Accept()
	}
}

// A client cannot stop the broker by opening connections until the process has too many open files.
func TestServeContinuesAfterTooManyOpenFiles(t *testing.T) {
	b, err := broker.New(broker.Config{})
	must(t, err)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	l := exhaustedListener{inner, make(chan struct{}, 1)}
	l.once <- struct{}{}
	served := make(chan error, 1)
	go func() { served <- b.Serve(l) }()
	conn, err := amqp.Dial("amqp://guest:guest@" + inner.Addr().String())
	must(t, err)
	must(t, conn.Close())
	must(t, b.Shutdown(context.Background()))
	if err := <-served; !errors.Is(err, broker.ErrClosed) {
		t.Errorf("Serve: got %v, want ErrClosed", err)
	}
}

// The broker does not recurse when a message is dead-lettered through many queues, one after the other. Shutdown does
// not wait until the message has passed through all queues.
func TestDeadLettersThroughManyQueues(t *testing.T) {
	const n = 1000
	b, conn := start(t, broker.Config{})
	ch := channel(t, conn)
	for i := range n {
		must(t, declare(ch, fmt.Sprint(i), amqp.Table{
			"x-max-length": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": fmt.Sprint(i + 1),
		}))
	}
	must(t, declare(ch, fmt.Sprint(n), nil))
	deliveries, err := ch.Consume(fmt.Sprint(n), "", true, false, false, false, nil)
	must(t, err)
	must(t, ch.Publish("", "0", true, false, amqp.Publishing{}))
	if deaths := (<-deliveries).Headers["x-death"].([]any); len(deaths) != n {
		t.Errorf("x-death: got %d entries, want %d", len(deaths), n)
	}
	must(t, ch.Publish("", "0", true, false, amqp.Publishing{}))
	must(t, b.Shutdown(context.Background()))
}

// New unroutable dead letters do not keep the queue from sending earlier dead letters again.
func TestUnroutableDeadLetterDoesNotBlockRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, conn := start(t, broker.Config{})
		ch := channel(t, conn)
		must(t, ch.ExchangeDeclare("dlx", "direct", true, false, false, false, nil))
		must(t, declare(ch, "source", amqp.Table{
			"x-queue-type": "quorum", "x-dead-letter-exchange": "dlx", "x-dead-letter-strategy": "at-least-once",
			"x-overflow": "reject-publish",
		}))
		must(t, declare(ch, "target", nil))
		x, cancel := context.WithCancel(t.Context())
		defer cancel()
		must(t, ch.ExchangeDeclare("in", "fanout", true, false, false, false, nil))
		must(t, ch.QueueBind("source", "", "in", false, nil))
		publish := func(key string) {
			must(t, ch.PublishWithContext(x, "in", key, true, false, amqp.Publishing{Expiration: "1"}))
		}
		publish("first")
		time.Sleep(time.Second)
		must(t, ch.QueueBind("target", "first", "dlx", false, nil))
		deliveries, err := ch.Consume("target", "", true, false, false, false, nil)
		must(t, err)
		for range 60 { // one unroutable message per second
			publish("nowhere")
			time.Sleep(time.Second)
		}
		select {
		case <-deliveries:
		default:
			t.Error("first message was not delivered within a minute")
		}
	})
}

// The broker routes the messages of a transaction when they are published, so that a commit cannot fail in the middle.
func TestCommitAfterExchangeDeletion(t *testing.T) {
	_, conn := start(t, broker.Config{})
	ch, tx := channel(t, conn), channel(t, conn)
	must(t, declare(ch, "q", nil))
	must(t, ch.ExchangeDeclare("x", "fanout", true, false, false, false, nil))
	must(t, ch.QueueBind("q", "", "x", false, nil))
	must(t, ch.Publish("", "q", true, false, amqp.Publishing{Body: []byte("old")}))
	must(t, tx.Tx())
	old, _, err := tx.Get("q", false)
	must(t, err)
	must(t, tx.Publish("x", "", true, false, amqp.Publishing{Body: []byte("new")}))
	must(t, old.Ack(false))
	must(t, tx.Qos(1, 0, false))
	must(t, ch.ExchangeDelete("x", false, false))
	must(t, tx.TxCommit())
	if d, ok, err := ch.Get("q", true); !ok || err != nil || string(d.Body) != "new" {
		t.Errorf("message: got %q, %v, %v, want new", d.Body, ok, err)
	}
	if _, ok, _ := ch.Get("q", true); ok {
		t.Error("acked message is still in the queue")
	}
}

// A refused consumer of direct reply-to does not leave a queue in memory.
func TestRefusedReplyConsumerLeavesNoQueue(t *testing.T) {
	b, conn := start(t, broker.Config{})
	for range 10 {
		ch := channel(t, conn)
		if _, err := ch.Consume("amq.rabbitmq.reply-to", "", false, false, false, false, nil); err == nil {
			t.Error("broker accepted a consumer without no-ack")
		}
		ch = channel(t, conn)
		_, _ = ch.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, amqp.Table{"x-priority": "high"})
		_ = ch.Close()
	}
	must(t, channel(t, conn).Qos(1, 0, false))
	if n := len(b.Queues()); n != 0 {
		t.Errorf("queues: got %d, want 0", n)
	}
}

// A client cannot bypass a permission with a line break in a name.
func TestLineBreakDoesNotBypassPermission(t *testing.T) {
	b, _ := start(t, broker.Config{})
	control := nodeOf(b).Access
	must(t, control.SetUser(access.User{Name: "ada", Hash: access.HashPassword("pw")}))
	must(t, control.SetPermission(access.Permission{User: "ada", VHost: "/", Configure: "^([^s]|s[^e]).*$", Write: ".*", Read: ".*"}))
	conn, err := dialAs(t, b, "ada", "/")
	must(t, err)
	refusal(t, declare(channel(t, conn), "s\necret", nil), 403,
		"ACCESS_REFUSED - configure access to queue 'secret' in vhost '/' refused for user 'ada'")
}

// The broker replaces a forged x-death header, even if the client sends it twice.
func TestBrokerReplacesForgedDeathHeader(t *testing.T) {
	b, conn := start(t, broker.Config{})
	ch := channel(t, conn)
	must(t, declare(ch, "dead", nil))
	must(t, declare(ch, "q", amqp.Table{"x-max-length": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}))
	deliveries, err := ch.Consume("dead", "", true, false, false, false, nil)
	must(t, err)

	raw, err := b.DialContext(t.Context(), "", "")
	must(t, err)
	defer raw.Close()
	forged := amqpwire.Table{{Name: "x-death", Value: "one"}, {Name: "x-death", Value: "two"}}
	p := amqpwire.Properties{Flags: amqpwire.PropHeaders, Headers: forged}
	properties, err := p.Append(nil)
	must(t, err)
	script := append([]byte(nil), amqpwire.ProtocolHeader[:]...)
	for _, m := range []amqpwire.Method{
		&amqpwire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"},
		&amqpwire.ConnectionTuneOk{ChannelMax: 10, FrameMax: 8192},
		&amqpwire.ConnectionOpen{VirtualHost: "/"},
	} {
		script, err = amqpwire.AppendMethodFrame(script, 0, m)
		must(t, err)
	}
	for _, m := range []amqpwire.Method{&amqpwire.ChannelOpen{}, &amqpwire.BasicPublish{RoutingKey: "q"}} {
		script, err = amqpwire.AppendMethodFrame(script, 1, m)
		must(t, err)
	}
	script = amqpwire.AppendHeaderFrame(script, 1, 60, 0, properties)
	go func() { _, _ = raw.Write(script) }()
	go func() {
		for buffer := make([]byte, 1024); ; {
			if _, err := raw.Read(buffer); err != nil {
				return
			}
		}
	}()
	deaths, ok := (<-deliveries).Headers["x-death"].([]any)
	if !ok || len(deaths) != 1 || !strings.Contains(fmt.Sprint(deaths[0]), "maxlen") {
		t.Errorf("unexpected x-death: %v", deaths)
	}
}
