package brokertest

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// sentContent is a command that a client sends on one of the channels 1 to 3, or on channel 4 if it is an incomplete
// message.
type sentContent struct {
	channel    uint16
	methods    []amqpwire.Method
	size       int // size of the message body in bytes; negative for a command without content
	incomplete bool
}

var genSentContent = rapid.Custom(func(t *rapid.T) sentContent {
	name := func(prefix string) string { return fmt.Sprint(prefix, rapid.IntRange(0, 1).Draw(t, prefix)) }
	yes := func(what string) bool { return rapid.Bool().Draw(t, what) }
	var args amqpwire.Table
	if yes("arguments") {
		args = amqpwire.Table{{Name: "text", Value: name("argument")}, {Name: "x-match", Value: "any"}}
	}
	tag := uint64(rapid.IntRange(0, 5).Draw(t, "tag"))
	exchange := rapid.SampledFrom([]string{"amq.topic", "amq.headers", "x0", "x1"}).Draw(t, "exchange")
	s := sentContent{channel: uint16(rapid.IntRange(1, 3).Draw(t, "channel")), size: -1}
	all := [][]amqpwire.Method{
		{&amqpwire.ChannelClose{}, &amqpwire.ChannelOpen{}},
		{&amqpwire.ConfirmSelect{}},
		{&amqpwire.BasicQos{PrefetchCount: 2}},
		{&amqpwire.TxSelect{}},
		{&amqpwire.TxCommit{}},
		{&amqpwire.TxRollback{}},
		{&amqpwire.QueueDeclare{Queue: name("q"), Exclusive: yes("exclusive"), AutoDelete: yes("auto-delete"), Arguments: args}},
		{&amqpwire.QueueDeclare{Queue: name("short"), Arguments: amqpwire.Table{{Name: "x-expires", Value: int32(20_000)}}}},
		{&amqpwire.QueueDeclare{Queue: name("quorum"), Durable: true, Arguments: amqpwire.Table{{Name: "x-queue-type", Value: "quorum"}}}},
		{&amqpwire.QueueDelete{Queue: name("q")}},
		{&amqpwire.QueuePurge{Queue: name("q")}},
		{&amqpwire.ExchangeDeclare{Exchange: name("x"), Type: "topic", AutoDelete: yes("auto-delete exchange"), Arguments: args}},
		{&amqpwire.ExchangeDelete{Exchange: name("x")}},
		{&amqpwire.QueueBind{Queue: name("q"), Exchange: exchange, RoutingKey: "a.*.#", Arguments: args}},
		{&amqpwire.QueueUnbind{Queue: name("q"), Exchange: exchange, RoutingKey: "a.*.#", Arguments: args}},
		{&amqpwire.ExchangeBind{Destination: name("x"), Source: exchange, RoutingKey: "a", Arguments: args}},
		{&amqpwire.BasicConsume{Queue: name("q"), ConsumerTag: name("c"), NoAck: yes("no-ack"), Arguments: args}},
		{&amqpwire.BasicConsume{Queue: "amq.rabbitmq.reply-to", ConsumerTag: "replies", NoAck: true}},
		{&amqpwire.BasicCancel{ConsumerTag: name("c")}},
		{&amqpwire.BasicCancel{ConsumerTag: "replies"}},
		{&amqpwire.BasicGet{Queue: name("q")}},
		{&amqpwire.BasicRecover{Requeue: true}},
		{&amqpwire.BasicAck{DeliveryTag: tag, Multiple: yes("multiple")}},
		{&amqpwire.BasicReject{DeliveryTag: tag, Requeue: yes("requeue")}},
	}
	which := rapid.IntRange(0, len(all)+5).Draw(t, "what")
	if which < len(all) {
		s.methods = all[which]
		return s
	}
	s.methods = []amqpwire.Method{&amqpwire.BasicPublish{RoutingKey: name("q"), Mandatory: yes("mandatory")}}
	s.size = rapid.SampledFrom([]int{0, 1, 2000, 200_000}).Draw(t, "size")
	s.incomplete = s.size > 0 && yes("incomplete")
	return s
})

// After any sequence of commands, and however the connections are closed, the memory accounts of the connections are
// empty. When the topology has been deleted, its account is also empty.
func TestMemoryAccountsAreEmptyAfterClose(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		says := rapid.SliceOfN(genSentContent, 50, 200).Draw(rt, "says")
		rapidly := rapid.Bool().Draw(rt, "rapidly")
		ends := rapid.SampledFrom([]string{"close", "cut", "delete", "shut down"}).Draw(rt, "ends")
		synctest.Test(t, func(t *testing.T) {
			b, conn := start(t, broker.Config{Logger: slog.New(errorsFail{t: t})})
			must(t, conn.Close())
			n := nodeOf(b)
			clients, half := make([]*rawClient, 2), make([]bool, 2)
			for i, s := range says {
				r := clients[i%2]
				if r == nil || r.closed != nil {
					r = dialRaw(t, b, amqpwire.Table{{Name: "product", Value: "test"}})
					clients[i%2] = r
					r.send(2, &amqpwire.ChannelOpen{})
					r.send(3, &amqpwire.ChannelOpen{})
					r.send(4, &amqpwire.ChannelOpen{})
					half[i%2] = false
					go r.read()
					defer func() {
						_ = r.conn.Close()
						close(r.out)
					}()
				}
				switch {
				case s.size < 0:
					r.send(s.channel, s.methods...)
				case !s.incomplete:
					r.publish(s.channel, s.methods[0].(*amqpwire.BasicPublish), s.size, s.size)
				case half[i%2]:
					r.out <- amqpwire.AppendBodyFrames(nil, 4, []byte{0}, 131072)
					half[i%2] = false
				default:
					r.publish(4, s.methods[0].(*amqpwire.BasicPublish), s.size, s.size-1)
					half[i%2] = true
				}
				if !rapidly {
					time.Sleep(5 * time.Second)
				}
				synctest.Wait()
			}
			for _, r := range clients {
				switch {
				case r == nil:
				case ends == "close":
					r.send(0, &amqpwire.ConnectionClose{})
				case ends == "cut":
					_ = r.conn.Close()
				case ends == "shut down":
					for _, s := range n.Sessions() {
						s.Shutdown("test")
					}
				}
			}
			if ends == "delete" {
				n.DeleteVHost("/")
			}
			for _, r := range clients {
				if r != nil {
					time.Sleep(time.Second)
					_ = r.conn.Close()
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if used := n.Connections.Used(); used != 0 {
				t.Errorf("account of the connections: got %d bytes, want 0", used)
			}
			n.DeleteVHost("/")
			if used := n.Topology.Used(); used != 0 {
				t.Errorf("account of the topology: got %d bytes, want 0", used)
			}
			if used := n.Memory.Used(); used != 0 {
				t.Errorf("account of the messages: got %d bytes, want 0", used)
			}
		})
		if t.Failed() {
			rt.Fatal("check failed; see the errors before this line")
		}
	})
}

// If a client repeatedly creates and removes the same objects, the memory account of its open connection does not grow.
func TestRepeatedOperationsDoNotLeakMemory(t *testing.T) {
	for name, again := range map[string]func(r *rawClient, tag uint64){
		"consume and cancel": func(r *rawClient, _ uint64) {
			r.send(1, &amqpwire.BasicConsume{Queue: "q", ConsumerTag: "c", Arguments: large}, &amqpwire.BasicCancel{ConsumerTag: "c"})
		},
		"consume, cancel and ack": func(r *rawClient, tag uint64) {
			r.publish(1, &amqpwire.BasicPublish{RoutingKey: "q"}, 1, 1)
			r.send(1, &amqpwire.BasicConsume{Queue: "q", ConsumerTag: "c", Arguments: large}, &amqpwire.BasicCancel{ConsumerTag: "c"},
				&amqpwire.BasicAck{DeliveryTag: tag})
		},
		"consume, cancel and ack, and roll back": func(r *rawClient, tag uint64) {
			r.publish(1, &amqpwire.BasicPublish{RoutingKey: "q"}, 1, 1)
			r.send(1, &amqpwire.TxSelect{}, &amqpwire.TxCommit{}, &amqpwire.BasicConsume{Queue: "q", ConsumerTag: "c", Arguments: large},
				&amqpwire.BasicCancel{ConsumerTag: "c"}, &amqpwire.BasicAck{DeliveryTag: tag}, &amqpwire.TxRollback{},
				&amqpwire.BasicAck{DeliveryTag: tag}, &amqpwire.TxCommit{})
		},
		"consume from a queue that is deleted": func(r *rawClient, _ uint64) {
			r.send(1, &amqpwire.QueueDeclare{Queue: "deleted"}, &amqpwire.BasicConsume{Queue: "deleted", ConsumerTag: "c", Arguments: large},
				&amqpwire.QueueDelete{Queue: "deleted"})
		},
		"consume with an invalid argument": func(r *rawClient, _ uint64) {
			r.send(1, &amqpwire.BasicConsume{Queue: "q", ConsumerTag: "x", Arguments: amqpwire.Table{{Name: "x-priority", Value: "high"}}})
		},
		"direct replies": func(r *rawClient, _ uint64) {
			r.send(1, &amqpwire.BasicConsume{Queue: "amq.rabbitmq.reply-to", ConsumerTag: "c", NoAck: true}, &amqpwire.BasicCancel{ConsumerTag: "c"})
		},
		"exclusive queues": func(r *rawClient, _ uint64) {
			r.send(1, &amqpwire.QueueDeclare{Queue: "mine", Exclusive: true, Arguments: large},
				&amqpwire.QueueDeclare{Queue: "mine", Exclusive: true, Arguments: large},
				&amqpwire.QueueBind{Queue: "mine", Exchange: "amq.topic", RoutingKey: "a.b", Arguments: large},
				&amqpwire.QueueBind{Queue: "mine", Exchange: "amq.topic", RoutingKey: "a.b", Arguments: large},
				&amqpwire.QueueUnbind{Queue: "mine", Exchange: "amq.topic", RoutingKey: "a.b", Arguments: large},
				&amqpwire.QueueBind{Queue: "mine", Exchange: "amq.headers", Arguments: large}, &amqpwire.QueueDelete{Queue: "mine"})
		},
		"exclusive queues that expire": func(r *rawClient, _ uint64) {
			r.send(1, &amqpwire.QueueDeclare{Queue: "mine", Exclusive: true, Arguments: amqpwire.Table{{Name: "x-expires", Value: int32(1)}}})
			time.Sleep(time.Second)
		},
		"transactions": func(r *rawClient, _ uint64) {
			r.send(1, &amqpwire.TxSelect{})
			r.publish(1, &amqpwire.BasicPublish{RoutingKey: "q"}, 100_000, 100_000)
			r.send(1, &amqpwire.TxCommit{})
			r.publish(1, &amqpwire.BasicPublish{RoutingKey: "q"}, 100_000, 100_000)
			r.send(1, &amqpwire.TxRollback{}, &amqpwire.QueuePurge{Queue: "q"})
		},
		"many unacked": func(r *rawClient, tag uint64) {
			for range 1100 {
				r.publish(1, &amqpwire.BasicPublish{RoutingKey: "q"}, 0, 0)
				r.send(1, &amqpwire.BasicGet{Queue: "q"})
			}
			r.send(1, &amqpwire.BasicAck{Multiple: true})
		},
		"returns": func(r *rawClient, _ uint64) {
			r.publish(1, &amqpwire.BasicPublish{RoutingKey: "nowhere", Mandatory: true}, 250_000, 250_000)
		},
		"large messages": func(r *rawClient, _ uint64) {
			r.publish(1, &amqpwire.BasicPublish{RoutingKey: "q"}, 250_000, 250_000)
			r.send(1, &amqpwire.QueuePurge{Queue: "q"})
		},
		"channels": func(r *rawClient, _ uint64) {
			r.send(9, &amqpwire.ChannelOpen{})
			r.publish(9, &amqpwire.BasicPublish{RoutingKey: "q"}, 1000, 999)
			r.send(8, &amqpwire.ChannelOpen{}, &amqpwire.ChannelClose{})
			r.out <- amqpwire.AppendBodyFrames(nil, 9, []byte{0}, 131072)
			r.send(9, &amqpwire.QueuePurge{Queue: "q"}, &amqpwire.ChannelClose{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, conn := start(t, broker.Config{Logger: slog.New(errorsFail{t: t})})
				must(t, declare(channel(t, conn), "q", nil))
				n, r := nodeOf(b), dialRaw(t, b, nil)
				defer r.conn.Close()
				defer close(r.out)
				go r.read()
				var connections, topology int64
				for i := range uint64(5) {
					again(r, i+1)
					synctest.Wait()
					if i > 0 && (n.Connections.Used() != connections || n.Topology.Used() != topology) {
						t.Fatalf("round %d: connections use %d bytes, %d before; the topology uses %d, %d before",
							i, n.Connections.Used(), connections, n.Topology.Used(), topology)
					}
					connections, topology = n.Connections.Used(), n.Topology.Used()
				}
				if r.closed != nil {
					t.Errorf("connection closed with %v", r.closed)
				}
			})
		})
	}
}
