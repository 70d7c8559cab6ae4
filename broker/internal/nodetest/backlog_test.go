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
	"github.com/reprisemq/reprise/internal/amqpwire"
)

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
		log := slog.New(slog.DiscardHandler)
		s, err := diskstore.Open(diskstore.Options{Dir: "data", Log: log, FS: fs})
		must(t, err)
		n, err := node.New(node.Config{
			Log: log, Store: s, MemoryLimit: 1 << 30, Resident: 1 << 29,
			Sessions: session.Config{ChannelMax: 10, FrameMax: 131072, MaxMessageSize: 1 << 20},
		})
		must(t, err)
		must(t, n.Access.SetUser(access.User{Name: "guest", Hash: access.HashPassword("guest")}))
		must(t, n.Access.SetPermission(access.Permission{User: "guest", VHost: "/", Configure: ".*", Write: ".*", Read: ".*"}))
		client, server := net.Pipe()
		must(t, n.Serve(server))
		go func() { _, _ = io.Copy(io.Discard, client) }()
		hello := append([]byte(nil), amqpwire.ProtocolHeader[:]...)
		frame := func(b []byte, channel uint16, m amqpwire.Method) []byte {
			b, err := amqpwire.AppendMethodFrame(b, channel, m)
			must(t, err)
			return b
		}
		hello = frame(hello, 0, &amqpwire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
		hello = frame(hello, 0, &amqpwire.ConnectionTuneOk{ChannelMax: 10, FrameMax: 131072})
		hello = frame(hello, 0, &amqpwire.ConnectionOpen{VirtualHost: "/"})
		_, err = client.Write(frame(hello, 1, &amqpwire.ChannelOpen{}))
		must(t, err)

		hangs.Store(true)
		large := amqpwire.Table{{Name: "text", Value: strings.Repeat("x", 100_000)}}
		once := frame(nil, 1, &amqpwire.ExchangeDeclare{Exchange: "x", Type: "fanout", Durable: true, NoWait: true, Arguments: large})
		once = frame(once, 1, &amqpwire.ExchangeDelete{Exchange: "x", NoWait: true})
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
