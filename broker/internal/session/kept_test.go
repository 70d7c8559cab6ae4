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

// waiting is a running session with a client. The client has an unacked message. The session waits for a disk that does not
// respond, after the test makes it wait.
type waiting struct {
	*Session
	t      *testing.T
	client net.Conn
	ended  chan error
}

// serve returns a session that does not wait yet.
func serve(t *testing.T, config *Config) *waiting {
	t.Helper()
	client, server := net.Pipe()
	w := &waiting{Session: New(server, config), t: t, client: client, ended: make(chan error, 1)}
	go func() { w.ended <- w.Serve() }()
	go func() { _, _ = io.Copy(io.Discard, client) }()
	if _, err := client.Write(amqpwire.ProtocolHeader[:]); err != nil {
		t.Fatal(err)
	}
	w.say(0, &amqpwire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00u\x00p", Locale: "en_US"},
		&amqpwire.ConnectionTuneOk{ChannelMax: 10, FrameMax: 8192, Heartbeat: 10}, &amqpwire.ConnectionOpen{VirtualHost: "/"})
	w.say(1, &amqpwire.ChannelOpen{}, &amqpwire.QueueDeclare{Queue: "q"}, &amqpwire.BasicPublish{RoutingKey: "q"})
	if _, err := client.Write(emptyMessage()); err != nil {
		t.Fatal(err)
	}
	w.say(1, &amqpwire.BasicGet{Queue: "q"})
	return w
}

// emptyMessage returns the header frame of an empty message on channel 1. It follows basic.publish.
func emptyMessage() []byte { return amqpwire.AppendHeaderFrame(nil, 1, classBasic, 0, []byte{0, 0}) }

func (w *waiting) say(channel uint16, methods ...amqpwire.Method) {
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

func (w *waiting) over() bool {
	synctest.Wait()
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

// eachWait calls the test for each operation during which a session can wait for the disk. The disk must not respond before
// the test returns.
func eachWait(t *testing.T, test func(t *testing.T, w *waiting)) {
	for name, wait := range map[string]func(w *waiting, disk *fakeStore){
		"commit": func(w *waiting, _ *fakeStore) {
			w.say(2, &amqpwire.ChannelOpen{}, &amqpwire.TxSelect{}, &amqpwire.TxCommit{})
		},
		"channel.close": func(w *waiting, disk *fakeStore) {
			w.say(2, &amqpwire.ChannelOpen{}, &amqpwire.ConfirmSelect{})
			w.confirms.add(w.channels[2], true, disk.gathering())
			w.say(2, &amqpwire.ChannelClose{})
		},
		"connection.close": func(w *waiting, disk *fakeStore) {
			w.say(2, &amqpwire.ChannelOpen{}, &amqpwire.ConfirmSelect{})
			w.confirms.add(w.channels[2], true, disk.gathering())
			w.say(0, &amqpwire.ConnectionClose{})
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
				if disk.gathering() != 1 {
					t.Error("the disk has answered")
				}
			})
		})
	}
}

func (w *waiting) unacked() int { return w.queue().Unacked }

func (w *waiting) queue() queue.Stats {
	w.t.Helper()
	q, err := w.vhost.Queue("q", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return q.Stats()
}

// A waiting session does not read. It must not treat its client as silent, and must still return its Info.
func TestASessionThatWaitsForTheDiskIsThere(t *testing.T) {
	eachWait(t, func(t *testing.T, w *waiting) {
		time.Sleep(time.Hour)
		if w.over() {
			t.Fatal("the client was taken to be silent")
		}
		info := w.Info()
		if len(info.Channels) != 2 || info.Channels[0].Unacked != 1 || info.State != "running" {
			t.Errorf("it is said to have %+v", info)
		}
		w.Abort()
		if !w.over() || w.unacked() != 0 {
			t.Errorf("it does not end; %d messages are unacked", w.unacked())
		}
	})
}

// If a client disconnects while the disk does not respond, the session must requeue its messages.
func TestAClientThatGoesWhileTheDiskHangs(t *testing.T) {
	eachWait(t, func(t *testing.T, w *waiting) {
		_ = w.client.Close()
		time.Sleep(10 * time.Second) // the heartbeat interval
		if !w.over() || w.unacked() != 0 {
			t.Errorf("it does not end; %d messages are unacked", w.unacked())
		}
	})
}

func TestShutdownOfASessionThatWaitsForTheDisk(t *testing.T) {
	eachWait(t, func(t *testing.T, w *waiting) {
		w.Shutdown("test")
		synctest.Wait()
		go w.client.Write([]byte{1, 0, 0, 0, 0, 0, 4, 0, 10, 0, 51, amqpwire.FrameEnd}) // connection.close-ok
		if !w.over() || w.unacked() != 0 {
			t.Errorf("it does not end; %d messages are unacked", w.unacked())
		}
	})
}
