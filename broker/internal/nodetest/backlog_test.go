package nodetest

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/reprisemq/reprise/broker/internal/access"
	"github.com/reprisemq/reprise/broker/internal/diskstore"
	"github.com/reprisemq/reprise/broker/internal/node"
	"github.com/reprisemq/reprise/broker/internal/session"
	"github.com/reprisemq/reprise/broker/internal/store"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// pipe returns a node with a store, and a client that has opened channel 1. The caller must read from the client.
func pipe(t *testing.T, s store.Store, resident int64) (*node.Node, net.Conn) {
	n, err := node.New(node.Config{
		Log: slog.New(slog.DiscardHandler), Store: s, MemoryLimit: 1 << 30, Resident: resident,
		Sessions: session.Config{ChannelMax: 10, FrameMax: 131072, MaxMessageSize: 1 << 20},
	})
	must(t, err)
	must(t, n.Access.SetUser(access.User{Name: "guest", Hash: access.HashPassword("guest")}))
	must(t, n.Access.SetPermission(access.Permission{User: "guest", VHost: "/", Configure: ".*", Write: ".*", Read: ".*"}))
	client, server := net.Pipe()
	must(t, n.Serve(server))
	hello := append([]byte(nil), amqpwire.ProtocolHeader[:]...)
	hello = frame(t, hello, 0, &amqpwire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
	hello = frame(t, hello, 0, &amqpwire.ConnectionTuneOk{ChannelMax: 10, FrameMax: 131072})
	hello = frame(t, hello, 0, &amqpwire.ConnectionOpen{VirtualHost: "/"})
	hello = frame(t, hello, 1, &amqpwire.ChannelOpen{})
	go func() {
		_, err := client.Write(hello)
		if err != nil {
			t.Error(err)
		}
	}()
	return n, client
}

func frame(t *testing.T, b []byte, channel uint16, m amqpwire.Method) []byte {
	t.Helper()
	b, err := amqpwire.AppendMethodFrame(b, channel, m)
	must(t, err)
	return b
}

// slowLoads is a store that reads messages only when load is closed.
type slowLoads struct {
	store.Store
	load chan struct{}
}

func (s slowLoads) Load(queue uint64, level uint8, after uint64, n, bytes int) ([]store.Loaded, error) {
	<-s.load
	return s.Store.Load(queue, level, after, n, bytes)
}

// While a consumer waits for messages from the disk, the broker does not read many further transient messages for the queue.
func TestTransientMessagesWaitForLoads(t *testing.T) {
	t.Run("small", func(t *testing.T) { waitForLoads(t, 100, 200, 600) })
	t.Run("large", func(t *testing.T) { waitForLoads(t, 16_000, 4, 12) }) // a load returns 17 messages
}

// waitForLoads expects that the broker reads a number of messages of a size during a load.
func waitForLoads(t *testing.T, size int, least, most int64) {
	synctest.Test(t, func(t *testing.T) {
		disk, err := diskstore.Open(diskstore.Options{Dir: "data", Log: slog.New(slog.DiscardHandler), FS: vfs.NewMem()})
		must(t, err)
		s := slowLoads{disk, make(chan struct{})}
		n, client := pipe(t, s, 64<<10)
		var delivered atomic.Int64
		go func() {
			for r := amqpwire.NewReader(client, 131072); ; {
				f, err := r.ReadFrame()
				if err != nil {
					return
				}
				if f.Type == amqpwire.FrameBody {
					delivered.Add(1)
				}
			}
		}()
		synctest.Wait()
		write := func(b []byte) {
			_, err := client.Write(b)
			must(t, err)
		}
		publish := frame(t, nil, 1, &amqpwire.BasicPublish{RoutingKey: "q"})
		publish = amqpwire.AppendHeaderFrame(publish, 1, 60, uint64(size), []byte{0, 0})
		publish = amqpwire.AppendBodyFrames(publish, 1, make([]byte, size), 131072)
		const before, after = 1000, 5000
		write(frame(t, nil, 1, &amqpwire.QueueDeclare{Queue: "q", NoWait: true}))
		for range before {
			write(publish)
		}
		synctest.Wait()
		write(frame(t, nil, 1, &amqpwire.BasicConsume{Queue: "q", NoAck: true, NoWait: true}))
		synctest.Wait()
		if got := delivered.Load(); got == 0 || got >= before {
			t.Fatalf("messages delivered before the load: got %d, want some, not all", got)
		}
		var written atomic.Int64
		go func() {
			for range after {
				if _, err := client.Write(publish); err != nil {
					return
				}
				written.Add(1)
			}
		}()
		synctest.Wait()
		if got := written.Load(); got < least || got > most {
			t.Errorf("messages read during the load: got %d, want %d to %d", got, least, most)
		}
		close(s.load)
		synctest.Wait()
		if got := written.Load(); got != after {
			t.Errorf("messages read after the load: got %d, want %d", got, after)
		}
		if got := delivered.Load(); got != before+after {
			t.Errorf("messages delivered: got %d, want %d", got, before+after)
		}
		must(t, client.Close())
		must(t, n.Shutdown(t.Context()))
		must(t, disk.Close(true))
	})
}

// While the store has a backlog, the broker does not read from a client that declares and deletes queues with no-wait.
func TestNoWaitDeclarationsWaitForBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		answer := make(chan struct{})
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if hangs.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, ".log") {
				<-answer
			}
			return nil
		}))
		s, err := diskstore.Open(diskstore.Options{Dir: "data", Log: slog.New(slog.DiscardHandler), FS: fs})
		must(t, err)
		n, client := pipe(t, s, 1<<29)
		go func() { _, _ = io.Copy(io.Discard, client) }()
		synctest.Wait()

		hangs.Store(true)
		large := amqpwire.Table{{Name: "text", Value: strings.Repeat("x", 100_000)}}
		once := frame(t, nil, 1, &amqpwire.ExchangeDeclare{Exchange: "x", Type: "fanout", Durable: true, NoWait: true, Arguments: large})
		once = frame(t, once, 1, &amqpwire.ExchangeDelete{Exchange: "x", NoWait: true})
		const times = 240
		var written atomic.Int64
		go func() {
			for range times {
				if _, err := client.Write(once); err != nil {
					return
				}
				written.Add(int64(len(once)))
			}
		}()
		synctest.Wait()
		if got := written.Load(); got > 20<<20 || got < 1<<20 {
			t.Errorf("bytes read while the disk hangs: got %d, want between 1 MiB and 20 MiB", got)
		}
		hangs.Store(false)
		close(answer)
		synctest.Wait()
		if got := written.Load(); got != times*int64(len(once)) {
			t.Errorf("bytes read after the disk responded: got %d, want %d", got, times*int64(len(once)))
		}
		must(t, client.Close())
		must(t, n.Shutdown(t.Context()))
		must(t, s.Close(true))
	})
}
