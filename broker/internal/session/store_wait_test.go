package session

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/broker/internal/queue"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// waitingSession is a running session with a client that has an unacked message. A test can make the session wait for a disk
// that does not respond.
type waitingSession struct {
	*Session
	t      *testing.T
	client net.Conn
	ended  chan error
}

// serve returns a session that is not yet waiting.
func serve(t *testing.T, config *Config) *waitingSession {
	t.Helper()
	client, server := net.Pipe()
	w := &waitingSession{Session: New(server, config), t: t, client: client, ended: make(chan error, 1)}
	go func() { w.ended <- w.Serve() }()
	go func() { _, _ = io.Copy(io.Discard, client) }()
	if _, err := client.Write(amqpwire.ProtocolHeader[:]); err != nil {
		t.Fatal(err)
	}
	w.send(0, &amqpwire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00u\x00p", Locale: "en_US"},
		&amqpwire.ConnectionTuneOk{ChannelMax: 10, FrameMax: 8192, Heartbeat: 10}, &amqpwire.ConnectionOpen{VirtualHost: "/"})
	w.send(1, &amqpwire.ChannelOpen{}, &amqpwire.QueueDeclare{Queue: "q"}, &amqpwire.BasicPublish{RoutingKey: "q"})
	if _, err := client.Write(emptyMessage()); err != nil {
		t.Fatal(err)
	}
	w.send(1, &amqpwire.BasicGet{Queue: "q"})
	return w
}

// emptyMessage returns the header frame of an empty message on channel 1, for use after basic.publish.
func emptyMessage() []byte { return amqpwire.AppendHeaderFrame(nil, 1, classBasic, 0, []byte{0, 0}) }

func (w *waitingSession) send(channel uint16, methods ...amqpwire.Method) {
	w.t.Helper()
	for _, m := range methods {
		b, err := amqpwire.AppendMethodFrame(nil, channel, m)
		if err != nil {
			w.t.Fatal(err)
		}
		if _, err := w.client.Write(b); err != nil {
			w.t.Fatal(err)
		}
	}
	synctest.Wait()
}

func (w *waitingSession) over() bool {
	synctest.Wait()
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// eachWait calls the test for each operation during which a session can wait for the disk. The disk does not respond until
// the test returns.
func eachWait(t *testing.T, test func(t *testing.T, w *waitingSession)) {
	for name, wait := range map[string]func(w *waitingSession, disk *fakeStore){
		"commit": func(w *waitingSession, _ *fakeStore) {
			w.send(2, &amqpwire.ChannelOpen{}, &amqpwire.TxSelect{}, &amqpwire.TxCommit{})
		},
		"channel.close": func(w *waitingSession, disk *fakeStore) {
			w.send(2, &amqpwire.ChannelOpen{}, &amqpwire.ConfirmSelect{})
			w.confirms.add(w.channels[2], true, disk.nextTicket())
			w.send(2, &amqpwire.ChannelClose{})
		},
		"connection.close": func(w *waitingSession, disk *fakeStore) {
			w.send(2, &amqpwire.ChannelOpen{}, &amqpwire.ConfirmSelect{})
			w.confirms.add(w.channels[2], true, disk.nextTicket())
			w.send(0, &amqpwire.ConnectionClose{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			config, disk := testConfig(t, nil), newFakeStore()
			config.Store = disk
			synctest.Test(t, func(t *testing.T) {
				w := serve(t, config)
				wait(w, disk)
				test(t, w)
				_ = w.client.Close()
				if disk.nextTicket() != 1 {
					t.Error("disk responded during the test")
				}
			})
		})
	}
}

func (w *waitingSession) unacked() int { return w.queue().Unacked }

func (w *waitingSession) queue() queue.Stats {
	w.t.Helper()
	q, err := w.vhost.Queue("q", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return q.Stats()
}

// A session that waits for the disk does not read. It must not treat its client as silent, and Info must not block.
func TestSessionRespondsWhileItWaitsForDisk(t *testing.T) {
	eachWait(t, func(t *testing.T, w *waitingSession) {
		time.Sleep(time.Hour)
		if w.over() {
			t.Fatal("session treated the client as silent")
		}
		info := w.Info()
		if len(info.Channels) != 2 || info.Channels[0].Unacked != 1 || info.State != "running" {
			t.Errorf("unexpected Info: %+v", info)
		}
		w.Abort()
		if !w.over() || w.unacked() != 0 {
			t.Errorf("session still runs or has unacked messages: got %d, want 0", w.unacked())
		}
	})
}

// If a client disconnects while the disk does not respond, the session must requeue its messages.
func TestDisconnectWhileSessionWaitsForDisk(t *testing.T) {
	eachWait(t, func(t *testing.T, w *waitingSession) {
		_ = w.client.Close()
		time.Sleep(10 * time.Second) // heartbeat interval
		if !w.over() || w.unacked() != 0 {
			t.Errorf("session still runs or has unacked messages: got %d, want 0", w.unacked())
		}
	})
}

func TestShutdownWhileSessionWaitsForDisk(t *testing.T) {
	eachWait(t, func(t *testing.T, w *waitingSession) {
		w.Shutdown("test")
		synctest.Wait()
		go w.client.Write([]byte{1, 0, 0, 0, 0, 0, 4, 0, 10, 0, 51, amqpwire.FrameEnd}) // connection.close-ok
		if !w.over() || w.unacked() != 0 {
			t.Errorf("session still runs or has unacked messages: got %d, want 0", w.unacked())
		}
	})
}
