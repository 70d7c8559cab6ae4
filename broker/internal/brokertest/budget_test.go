package brokertest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// rawClient is a client that can send any commands and ignore the replies. It works in synctest bubbles.
type rawClient struct {
	t      *testing.T
	conn   net.Conn
	out    chan []byte
	closed *amqpwire.ConnectionClose // the broker's reason; nil while the connection is open
}

// dialRaw opens a connection with the given client properties, and a channel.
func dialRaw(t *testing.T, b *broker.Broker, properties amqpwire.Table) *rawClient {
	return dialBeating(t, b, properties, 0)
}

// dialBeating is like dialRaw, but negotiates a heartbeat interval, in seconds. The test must send the heartbeats.
func dialBeating(t *testing.T, b *broker.Broker, properties amqpwire.Table, heartbeat uint16) *rawClient {
	conn, err := b.DialContext(t.Context(), "", "")
	must(t, err)
	r := &rawClient{t: t, conn: conn, out: make(chan []byte, 10_000)}
	go func() {
		for b := range r.out {
			if _, err := conn.Write(b); err != nil {
				return
			}
		}
	}()
	r.out <- amqpwire.ProtocolHeader[:]
	r.send(0, &amqpwire.ConnectionStartOk{ClientProperties: properties, Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"},
		&amqpwire.ConnectionTuneOk{ChannelMax: 2047, FrameMax: 131072, Heartbeat: heartbeat}, &amqpwire.ConnectionOpen{VirtualHost: "/"})
	r.send(1, &amqpwire.ChannelOpen{})
	return r
}

func (r *rawClient) send(channel uint16, methods ...amqpwire.Method) {
	for _, m := range methods {
		b, err := amqpwire.AppendMethodFrame(nil, channel, m)
		must(r.t, err)
		r.out <- b
	}
}

// publish begins a message with a body of size bytes, and sends the first sent bytes of the body.
func (r *rawClient) publish(channel uint16, m *amqpwire.BasicPublish, size, sent int) {
	r.send(channel, m)
	b := amqpwire.AppendHeaderFrame(nil, channel, 60, uint64(size), []byte{0, 0})
	r.out <- amqpwire.AppendBodyFrames(b, channel, make([]byte, sent), 131072)
}

// read reads until the connection is closed, and records the broker's reason.
func (r *rawClient) read() {
	in := amqpwire.NewReader(r.conn, 0)
	for {
		f, err := in.ReadFrame()
		if err != nil {
			return
		}
		if f.Type != amqpwire.FrameMethod {
			continue
		}
		m, err := amqpwire.ParseMethod(f.Payload)
		must(r.t, err)
		switch m := m.(type) {
		case *amqpwire.ConnectionClose:
			r.closed = m
			r.send(0, &amqpwire.ConnectionCloseOk{})
		case *amqpwire.ChannelClose:
			r.send(f.Channel, &amqpwire.ChannelCloseOk{}, &amqpwire.ChannelOpen{})
		}
	}
}

// neighbour is a well-behaved client that runs during an attack. Each round trip publishes a message, waits for its
// confirm and consumes it.
type neighbour struct {
	t          *testing.T
	ch         *amqp.Channel
	deliveries <-chan amqp.Delivery
	ended      chan *amqp.Error
	blocked    chan amqp.Blocking
}

func newNeighbour(t *testing.T, conn *amqp.Connection) *neighbour {
	n := &neighbour{
		t: t, ch: channel(t, conn),
		ended: conn.NotifyClose(make(chan *amqp.Error, 1)), blocked: conn.NotifyBlocked(make(chan amqp.Blocking, 1)),
	}
	must(t, declare(n.ch, "neighbour", nil))
	must(t, n.ch.Confirm(false))
	var err error
	n.deliveries, err = n.ch.Consume("neighbour", "", false, false, false, false, nil)
	must(t, err)
	return n
}

func (n *neighbour) roundTrip() {
	n.t.Helper()
	confirm, err := n.ch.PublishWithDeferredConfirm("", "neighbour", true, false, amqp.Publishing{Body: []byte("body")})
	must(n.t, err)
	select {
	case e := <-n.ended:
		n.t.Fatalf("connection of the neighbour closed: %v", e)
	case e := <-n.blocked:
		n.t.Fatalf("connection of the neighbour blocked: %v", e)
	case <-confirm.Done():
	}
	d := <-n.deliveries
	must(n.t, d.Ack(false))
}

// errorsFail is a log handler that fails the test if the broker logs an error, such as an accounting error.
type errorsFail struct {
	slog.Handler
	t *testing.T
}

func (c errorsFail) Enabled(context.Context, slog.Level) bool { return true }

func (c errorsFail) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		c.t.Error(r.Message)
	}
	return nil
}

func (c errorsFail) WithAttrs([]slog.Attr) slog.Handler { return c }

// large is a table that needs much more memory than its encoded form.
var large = func() amqpwire.Table {
	var words amqpwire.Array
	for range 5000 {
		words = append(words, "xy")
	}
	return amqpwire.Table{{Name: "words", Value: words}}
}()

// attack describes a client that makes the broker store more and more data.
type attack struct {
	mostly string
	step   func(r *rawClient, i int)
	unread bool // the client does not read
}

const attackLimit = 512 << 10

var attacks = map[string]attack{
	"consumers": {"consumers", func(r *rawClient, i int) {
		r.send(1, &amqpwire.BasicConsume{Queue: "q", ConsumerTag: fmt.Sprint(i), NoWait: true, Arguments: large})
	}, false},
	"consumers that are cancelled with a message": {"consumers", func(r *rawClient, _ int) {
		r.send(1, &amqpwire.QueueDeclare{Queue: "cancelled"})
		for range 20 {
			r.publish(1, &amqpwire.BasicPublish{RoutingKey: "cancelled"}, 0, 0)
			r.send(1, &amqpwire.BasicConsume{Queue: "cancelled", ConsumerTag: "c", Arguments: large}, &amqpwire.BasicCancel{ConsumerTag: "c"})
		}
	}, false},
	"channels": {"channels", func(r *rawClient, i int) { r.send(uint16(i+2), &amqpwire.ChannelOpen{}) }, false},
	"unfinished bodies": {"unfinished messages", func(r *rawClient, i int) {
		r.send(uint16(i+2), &amqpwire.ChannelOpen{})
		r.publish(uint16(i+2), &amqpwire.BasicPublish{RoutingKey: "q"}, 100_000, 99_999)
	}, false},
	"unfinished properties": {"unfinished messages", func(r *rawClient, i int) {
		r.send(uint16(i+2), &amqpwire.ChannelOpen{}, &amqpwire.BasicPublish{RoutingKey: "q"})
		r.out <- amqpwire.AppendHeaderFrame(nil, uint16(i+2), 60, 1, make([]byte, 50_000))
	}, false},
	"transaction": {"uncommitted transactions", func(r *rawClient, i int) {
		r.send(1, &amqpwire.TxSelect{})
		r.publish(1, &amqpwire.BasicPublish{RoutingKey: "nowhere"}, 10_000, 10_000)
	}, false},
	"settled in a transaction": {"uncommitted transactions", func(r *rawClient, i int) {
		if i == 0 {
			r.send(2, &amqpwire.ChannelOpen{})
		}
		r.send(2, &amqpwire.TxSelect{}, &amqpwire.QueueDeclare{Queue: "settled"})
		for n := range 200 {
			r.publish(1, &amqpwire.BasicPublish{RoutingKey: "settled"}, 0, 0)
			r.send(2, &amqpwire.BasicGet{Queue: "settled"}, &amqpwire.BasicAck{DeliveryTag: uint64(i*200 + n + 1)})
		}
	}, false},
	"unacked": {"unacknowledged deliveries", func(r *rawClient, _ int) {
		r.send(1, &amqpwire.QueueDeclare{Queue: "unacked"})
		for range 1000 {
			r.publish(1, &amqpwire.BasicPublish{RoutingKey: "unacked"}, 0, 0)
			r.send(1, &amqpwire.BasicGet{Queue: "unacked"})
		}
	}, false},
	"unread": {"unread frames", func(r *rawClient, _ int) {
		r.publish(1, &amqpwire.BasicPublish{RoutingKey: "nowhere", Mandatory: true}, 100_000, 100_000)
	}, true},
	"exclusive queues": {"exclusive queues", func(r *rawClient, i int) {
		r.send(1, &amqpwire.QueueDeclare{Queue: fmt.Sprint("mine-", i), Exclusive: true, NoWait: true})
	}, false},
	"bindings to an exclusive queue": {"exclusive queues", func(r *rawClient, i int) {
		r.send(1, &amqpwire.QueueDeclare{Queue: "mine", Exclusive: true, NoWait: true},
			&amqpwire.QueueBind{Queue: "mine", Exchange: "amq.topic", RoutingKey: strings.Repeat("a.", 100) + fmt.Sprint(i), NoWait: true})
	}, false},
	"reply queues": {"channels", func(r *rawClient, i int) {
		r.send(uint16(i+2), &amqpwire.ChannelOpen{}, &amqpwire.BasicConsume{Queue: "amq.rabbitmq.reply-to", NoAck: true, NoWait: true})
	}, false},
}

// If a client makes the broker store too much data, the broker closes the connection, reports the reason and frees
// the memory. Other clients are not affected.
func TestConnectionMemoryLimit(t *testing.T) {
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, conn := start(t, broker.Config{
					ConnectionMemoryLimit: attackLimit, MaxMessageSize: 256 << 10, Logger: slog.New(errorsFail{t: t}),
				})
				must(t, declare(channel(t, conn), "q", nil))
				good := newNeighbour(t, conn)
				good.roundTrip()
				before := nodeOf(b).Connections.Used()
				r := dialRaw(t, b, nil)
				defer r.conn.Close()
				if !attack.unread {
					go r.read()
				}
				for i := 0; !over(b, r, attack.unread); i++ {
					if i == 5000 {
						t.Fatalf("connection is still open and uses %d bytes", nodeOf(b).Connections.Used())
					}
					attack.step(r, i)
					good.roundTrip()
					if used := nodeOf(b).Connections.Used(); used > 2*attackLimit {
						t.Fatalf("account: got %d bytes, want at most %d", used, 2*attackLimit)
					}
				}
				if attack.unread {
					r.read()
				}
				want := fmt.Sprintf("RESOURCE_ERROR - memory limit of a connection (%d bytes) exceeded, mostly by %s; "+
					"to raise it, set ConnectionMemoryLimit or --connection-memory-limit", attackLimit, attack.mostly)
				if r.closed == nil || r.closed.ReplyCode != 506 || r.closed.ReplyText != want {
					t.Errorf("connection closed with %+v, want %s", r.closed, want)
				}
				close(r.out)
				good.roundTrip()
				synctest.Wait()
				if used := nodeOf(b).Connections.Used(); used != before {
					t.Errorf("account after the attack: got %d bytes, want %d", used, before)
				}
				must(t, conn.Close())
				synctest.Wait()
				if used := nodeOf(b).Connections.Used(); used != 0 {
					t.Errorf("account after the last connection: got %d bytes, want 0", used)
				}
			})
		})
	}
}

// over reports whether the broker has closed the connection of a client or, if the client does not read, is closing a
// connection.
func over(b *broker.Broker, r *rawClient, unread bool) bool {
	synctest.Wait()
	if !unread {
		return r.closed != nil
	}
	for _, s := range nodeOf(b).Sessions() {
		if s.Info().State == "closing" {
			return true
		}
	}
	return false
}

// If all connections together exceed their common limit, but no connection exceeds the limit for one connection, the
// broker closes the largest connection.
func TestTotalConnectionMemoryLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 10 << 20
		b, conn := start(t, broker.Config{MaxMessageSize: 4 << 20, ConnectionMemoryLimit: 8 << 20, TotalConnectionMemoryLimit: limit, Logger: slog.New(errorsFail{t: t})})
		must(t, declare(channel(t, conn), "q", nil))
		good := newNeighbour(t, conn)
		var clients []*rawClient
		closed := 0
		for i := 0; closed < 3; i++ {
			if i == 5000 {
				t.Fatalf("only %d of %d connections were closed", closed, len(clients))
			}
			if i%20 == 0 { // so that older connections use more memory
				r := dialRaw(t, b, nil)
				defer r.conn.Close()
				go r.read()
				clients = append(clients, r)
			}
			for _, r := range clients {
				r.send(1, &amqpwire.BasicConsume{Queue: "q", ConsumerTag: fmt.Sprint(i), NoWait: true, Arguments: large})
				synctest.Wait()
			}
			good.roundTrip()
			if used := nodeOf(b).Connections.Used(); used > limit*5/4 {
				t.Fatalf("account: got %d bytes, want at most %d", used, limit*5/4)
			}
			if clients[closed].closed != nil {
				closed++
			}
			for _, r := range clients[closed:] {
				if r.closed != nil {
					t.Fatalf("broker closed a connection that was not the largest: %+v", r.closed)
				}
			}
		}
		want := fmt.Sprintf("RESOURCE_ERROR - memory limit of all connections (%d bytes) exceeded, and this one keeps the most, "+
			"mostly consumers; to raise it, set TotalConnectionMemoryLimit or --total-connection-memory-limit", limit)
		for _, r := range clients[:closed] {
			if r.closed.ReplyCode != 506 || r.closed.ReplyText != want {
				t.Errorf("connection closed with %+v, want %s", r.closed, want)
			}
		}
		for _, r := range clients {
			must(t, r.conn.Close())
			close(r.out)
		}
		must(t, conn.Close())
		synctest.Wait()
		if used := nodeOf(b).Connections.Used(); used != 0 {
			t.Errorf("account after the last connection: got %d bytes, want 0", used)
		}
	})
}

// If a client does not continue an incomplete message for a minute, the broker closes the connection, even if the
// client sends other commands.
func TestIncompleteMessageTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, conn := start(t, broker.Config{})
		good := newNeighbour(t, conn)
		slow, lost := dialRaw(t, b, nil), dialRaw(t, b, nil)
		for _, r := range []*rawClient{slow, lost} {
			defer r.conn.Close()
			defer close(r.out)
			go r.read()
			r.publish(1, &amqpwire.BasicPublish{RoutingKey: "nowhere"}, 10, 1)
			r.send(2, &amqpwire.ChannelOpen{})
		}
		for range 6 {
			time.Sleep(15 * time.Second)
			slow.out <- amqpwire.AppendBodyFrames(nil, 1, []byte{0}, 131072)
			lost.publish(2, &amqpwire.BasicPublish{RoutingKey: "nowhere"}, 1, 1)
			good.roundTrip()
			synctest.Wait()
		}
		if slow.closed != nil {
			t.Errorf("connection of a slow publisher closed with %+v", slow.closed)
		}
		want := "RESOURCE_ERROR - message on channel 1 is incomplete, and no part of it has come for 1m0s"
		if lost.closed == nil || lost.closed.ReplyCode != 506 || lost.closed.ReplyText != want {
			t.Errorf("connection closed with %+v, want %s", lost.closed, want)
		}
	})
}

// While the broker does not read because of an alarm, an incomplete message does not time out.
func TestIncompleteMessageDoesNotTimeOutDuringAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := start(t, broker.Config{MemoryLimit: 1})
		r := dialRaw(t, b, nil)
		defer r.conn.Close()
		defer close(r.out)
		go r.read()
		r.send(1, &amqpwire.QueueDeclare{Queue: "full"})
		r.send(2, &amqpwire.ChannelOpen{})
		r.publish(2, &amqpwire.BasicPublish{RoutingKey: "full"}, 2, 1)
		r.publish(1, &amqpwire.BasicPublish{RoutingKey: "full"}, 1, 1)
		r.publish(1, &amqpwire.BasicPublish{RoutingKey: "full"}, 1, 1) // the broker does not read this message
		r.out <- amqpwire.AppendBodyFrames(nil, 2, []byte{0}, 131072)
		time.Sleep(time.Hour)
		synctest.Wait()
		if ready := b.Queues()[0].Ready; ready != 1 {
			t.Fatalf("broker accepted %d messages during a memory alarm, want 1", ready)
		}
		nodeOf(b).VHost("/").FindQueue("full").Purge()
		time.Sleep(time.Minute)
		synctest.Wait()
		if r.closed != nil {
			t.Errorf("connection closed with %+v", r.closed)
		}
	})
}

// Client properties count towards the memory limit of the connection.
func TestMemoryIncludesClientProperties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := start(t, broker.Config{MaxMessageSize: 32 << 10, ConnectionMemoryLimit: 64 << 10})
		words := amqpwire.Array(make([]any, 7000))
		r := dialRaw(t, b, amqpwire.Table{{Name: "words", Value: words}})
		defer r.conn.Close()
		defer close(r.out)
		go r.read()
		synctest.Wait()
		if r.closed == nil || !strings.Contains(r.closed.ReplyText, "mostly by client properties") {
			t.Errorf("connection closed with %+v", r.closed)
		}
	})
}
