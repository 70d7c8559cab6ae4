package brokertest

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/testkit"
)

// loggedLines returns the lines of a log that contain text.
func loggedLines(log *testkit.Buffer, text string) (found []string) {
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// failingListener is a listener that has no free file descriptors until a time. It then accepts one connection.
type failingListener struct {
	until time.Time
	conns chan net.Conn
	once  sync.Once
}

func (l *failingListener) Accept() (net.Conn, error) {
	if time.Now().Before(l.until) {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	conn, open := <-l.conns
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (l *failingListener) Close() error { l.once.Do(func() { close(l.conns) }); return nil }
func (*failingListener) Addr() net.Addr { return &net.UnixAddr{Name: "failing"} }

// While the process has too many open files, the broker logs it once per minute, with the limit and a remedy, and then
// the end.
func TestTooManyOpenFilesAreLoggedOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Buffer
		b, _ := start(t, broker.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		l := &failingListener{until: time.Now().Add(150 * time.Second), conns: make(chan net.Conn)}
		served := make(chan error, 1)
		go func() { served <- b.Serve(l) }()
		time.Sleep(10 * time.Second)
		if first := loggedLines(&log, "cannot accept connections"); len(first) != 1 || !strings.Contains(first[0], "raise the limit of open files") ||
			!strings.Contains(first[0], "level=ERROR") || !strings.Contains(first[0], "file_limit=") {
			t.Errorf("after 10 s: got %q, want one error with the limit and a remedy", first)
		}
		client, server := net.Pipe()
		l.conns <- server
		must(t, client.Close())
		time.Sleep(time.Minute)
		all, ended := loggedLines(&log, "cannot accept connections"), loggedLines(&log, "connections are accepted again")
		if len(all) != 3 || !strings.Contains(all[2], "omitted=1199") {
			t.Errorf("got %q, want 3 lines, each with the number of omitted failures", all)
		}
		if len(ended) != 1 || !strings.Contains(ended[0], "after=2m30s") {
			t.Errorf("got %q, want the end of the failure once", ended)
		}
	})
}

// Clients can cause only a limited number of log messages about refused and failed connections.
func TestClientsCannotFloodLog(t *testing.T) {
	for name, c := range map[string]struct {
		config broker.Config
		open   func(t *testing.T, b *broker.Broker)
		logs   string
		most   int
	}{
		"connections above the limit": {broker.Config{MaxConnections: 1}, knock, "connection refused", 10},
		"invalid handshakes":          {broker.Config{}, knock, "connection ended", 100},
		"connection exceptions":       {broker.Config{}, failConnection, "closing the connection", 100},
		"memory limits":               {broker.Config{ConnectionMemoryLimit: attackLimit, MaxMessageSize: 256 << 10}, exhaustMemory, "closing the connection", 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log testkit.Buffer
				c.config.Logger = slog.New(slog.NewTextHandler(&log, nil))
				b, _ := start(t, c.config)
				for range 300 {
					c.open(t, b)
				}
				if found := loggedLines(&log, c.logs); len(found) != c.most {
					t.Errorf("got %d lines, want %d", len(found), c.most)
				}
				time.Sleep(time.Minute)
				c.open(t, b)
				synctest.Wait()
				found := loggedLines(&log, c.logs)
				if len(found) != c.most+1 || strings.Contains(found[c.most], "omitted=0") || !strings.Contains(found[c.most], "omitted=") {
					t.Errorf("got %q, want one more line with the number of omitted lines", found)
				}
			})
		})
	}
}

// knock opens a connection that is not an AMQP connection.
func knock(t *testing.T, b *broker.Broker) {
	conn, err := b.DialContext(t.Context(), "", "")
	must(t, err)
	go func() { _, _ = conn.Write([]byte("GET / HTTP/1.1\r\n\r\n")) }()
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close()
}

// failConnection opens a connection that the broker closes because of an error of the client.
func failConnection(t *testing.T, b *broker.Broker) {
	conn := dial(t, b)
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	must(t, channel(t, conn).Publish("", "q", false, true, amqp.Publishing{})) // RabbitMQ does not support the flag immediate
	if err := <-closed; err == nil {
		t.Fatal("connection was not closed with an error")
	}
}

// exhaustMemory opens a connection that exceeds the memory limit of a connection.
func exhaustMemory(t *testing.T, b *broker.Broker) {
	r := dialRaw(t, b, nil)
	defer close(r.out)
	for i := range attackLimit / 100_000 {
		attacks["unfinished bodies"].step(r, i)
	}
	r.read()
	_ = r.conn.Close()
}
