package brokertest

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// Objects that outlive their connection have a separate limit. When the limit is reached, existing objects remain
// usable, and deleting objects frees memory.
func TestTopologyMemoryLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1 << 20
		b, conn := start(t, broker.Config{TopologyMemoryLimit: limit})
		good := newNeighbour(t, conn)
		full := func(what string) string {
			return fmt.Sprintf("PRECONDITION_FAILED - cannot declare %s: memory limit for queues, exchanges and bindings (%d bytes) "+
				"is reached; to raise it, set TopologyMemoryLimit or --topology-memory-limit", what, limit)
		}
		other := dial(t, b)
		ch := channel(t, other)
		must(t, ch.ExchangeDeclare("x", "topic", true, false, false, false, nil))
		args := amqp.Table{"x-comment": strings.Repeat("x", 10_000)}
		var err error
		n := 0
		for ; err == nil && n < 1000; n++ {
			err = declare(ch, fmt.Sprint("q", n), args)
			good.roundTrip()
		}
		refusal(t, err, 406, full(fmt.Sprintf("queue 'q%d' in vhost '/'", n-1)))
		ch = channel(t, other)
		for i := range 1000 {
			if err = ch.QueueBind("q0", fmt.Sprintf("%d.%s", i, strings.Repeat("a.", 50)), "x", false, nil); err != nil {
				break
			}
		}
		refusal(t, err, 406, full("binding to exchange 'x' in vhost '/'"))
		for i := range 1000 {
			if err = channel(t, other).ExchangeDeclare(fmt.Sprint("x", i), "topic", true, false, false, false, nil); err != nil {
				break
			}
		}
		var refused *amqp.Error
		if !errors.As(err, &refused) || refused.Code != 406 {
			t.Errorf("declaration beyond the limit: got %v, want code 406", err)
		}
		ch = channel(t, other)
		must(t, declare(ch, "q0", args)) // succeeds, because the queue exists
		_, err = ch.QueueDeclare("", false, true, true, false, nil)
		must(t, err) // succeeds, because exclusive queues count towards the limit of the connection
		for i := range n - 1 {
			_, err := ch.QueueDelete(fmt.Sprint("q", i), false, false, false)
			must(t, err)
		}
		must(t, declare(ch, "again", args))
		good.roundTrip()
	})
}

// The limit applies to the allocated memory, and not to the encoded size of tables. Clients that send large tables, and
// reconnect whenever the broker closes the connection, cannot make the broker use more than twice the limit.
func TestMemoryLimitBoundsHeap(t *testing.T) {
	const limit = 16 << 20
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	synctest.Test(t, func(t *testing.T) {
		b, conn := start(t, broker.Config{MaxMessageSize: limit / 2, ConnectionMemoryLimit: limit, TotalConnectionMemoryLimit: limit, Logger: slog.New(errorsFail{t: t})})
		must(t, declare(channel(t, conn), "q", nil))
		before, most, closed := heap(), int64(0), 0
		clients := make([]*rawClient, 3)
		for i := range 1000 {
			r := clients[i%3]
			if r == nil || r.closed != nil {
				if r != nil {
					closed++
					must(t, r.conn.Close())
					close(r.out)
				}
				r = dialRaw(t, b, nil)
				go r.read()
				clients[i%3] = r
			}
			r.send(1, &amqpwire.BasicConsume{Queue: "q", ConsumerTag: fmt.Sprint(i), NoWait: true, Arguments: large})
			synctest.Wait()
			if i%20 == 0 {
				most = max(most, heap()-before)
			}
		}
		for _, r := range clients {
			must(t, r.conn.Close())
			close(r.out)
		}
		if most > 2*limit || most < limit/2 || closed < 5 {
			t.Errorf("heap grew by %d MiB with a limit of %d MiB and %d closed connections", most>>20, limit>>20, closed)
		}
	})
}

// The memory account includes more than the length of each additional routing key.
func TestMemoryIncludesRoutingKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, conn := start(t, broker.Config{})
		ch := channel(t, conn)
		must(t, declare(ch, "q", nil))
		const keys, messages = 5000, 20
		for range messages {
			must(t, ch.Publish("", "q", true, false, amqp.Publishing{Headers: amqp.Table{"CC": make([]any, 0, keys)}}))
		}
		synctest.Wait()
		without := nodeOf(b).Memory.Used()
		cc := make([]any, keys)
		for i := range cc {
			cc[i] = ""
		}
		for range messages {
			must(t, ch.Publish("", "q", true, false, amqp.Publishing{Headers: amqp.Table{"CC": cc}}))
		}
		synctest.Wait()
		const onTheWire, header = 5, 16 // bytes for each key
		if got := nodeOf(b).Memory.Used() - without; got < messages*keys*(onTheWire+header) {
			t.Errorf("account of %d messages with %d keys each: got %d bytes, want at least %d", messages, keys, got, messages*keys*(onTheWire+header))
		}
	})
}

// The memory account includes the buffer for large frames. The broker frees the buffer after the client has sent only
// small frames for a while.
func TestMemoryIncludesFrameBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 100_000
		b, _ := start(t, broker.Config{})
		r := dialRaw(t, b, nil)
		defer r.conn.Close()
		defer close(r.out)
		go r.read()
		used := func() int64 {
			synctest.Wait()
			return nodeOf(b).Connections.Used()
		}
		frame, err := amqpwire.AppendMethodFrame(nil, 1, &amqpwire.QueueDeclare{Queue: "q", NoWait: true, Arguments: amqpwire.Table{
			{Name: "x-comment", Value: strings.Repeat("x", size)},
		}})
		must(t, err)
		for range 2 {
			before := used()
			r.out <- frame[:size]
			if part := used(); part < before+size-8192 {
				t.Errorf("account during an incomplete frame: got %d bytes, want at least %d", part, before+size-8192)
			}
			r.out <- frame[size:]
			r.send(1, &amqpwire.QueueDelete{Queue: "q"})
			for range 5 {
				r.out <- amqpwire.AppendHeartbeatFrame(nil)
			}
			if after := used(); after > before+1000 {
				t.Errorf("account after the frame: got %d bytes, want at most %d", after, before+1000)
			}
		}
	})
}

// The broker does not close the connections of slow readers. With a lower memory limit, it buffers fewer bytes for each
// of them.
func TestBrokerDoesNotCloseSlowReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total, clients = 4 << 20, 30
		b, conn := start(t, broker.Config{TotalConnectionMemoryLimit: total, Logger: slog.New(errorsFail{t: t})})
		good := newNeighbour(t, conn)
		ch := channel(t, conn)
		must(t, ch.ExchangeDeclare("all", "fanout", true, false, false, false, nil))
		slow := make([]*rawClient, clients)
		for i := range slow {
			slow[i] = dialRaw(t, b, nil)
			defer slow[i].conn.Close()
			defer close(slow[i].out)
			slow[i].send(1, &amqpwire.QueueDeclare{Queue: fmt.Sprint(i)},
				&amqpwire.QueueBind{Queue: fmt.Sprint(i), Exchange: "all"}, &amqpwire.BasicConsume{Queue: fmt.Sprint(i), NoAck: true})
			go io.CopyN(io.Discard, slow[i].conn, 500) // the client reads only this number of bytes
		}
		synctest.Wait()
		for range 200 {
			must(t, ch.Publish("all", "", false, false, amqp.Publishing{Body: make([]byte, 10_000)}))
			good.roundTrip()
		}
		for _, s := range nodeOf(b).Sessions() {
			if info := s.Info(); info.State != "running" {
				t.Errorf("connection %s: got state %s, want running", info.Name, info.State)
			}
		}
		if used := nodeOf(b).Connections.Used(); used < total/3 || used > total {
			t.Errorf("account: got %d bytes, want at most %d and at least a third of it", used, total)
		}
		for i, r := range slow {
			go io.Copy(io.Discard, r.conn)
			synctest.Wait()
			if left := nodeOf(b).VHost("/").FindQueue(fmt.Sprint(i)).Stats().Ready; left != 0 {
				t.Errorf("%d messages were not delivered to client %d, which reads", left, i)
			}
		}
	})
}
