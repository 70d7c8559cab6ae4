package brokertest

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/internal/amqpwire"
)

// The broker does not close the connection of a slow reader that reads some data or sends heartbeats. The broker reads
// heartbeats even while a lot of data is queued for the client, but not heartbeats that follow a request.
func TestHeartbeatsKeepSlowReaderOpen(t *testing.T) {
	const heartbeat, messages, size = 10, 3, 1 << 20
	for name, test := range map[string]struct {
		beats, requests bool
		reads           int64 // bytes per five seconds
		cut             bool
	}{
		"silent":                      {cut: true},
		"heartbeats":                  {beats: true},
		"slow":                        {reads: 100_000},
		"heartbeats behind a request": {beats: true, requests: true, cut: true},
		"slow, and heartbeats that wait in a queue": {beats: true, requests: true, reads: 100_000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, conn := start(t, broker.Config{})
				ch := channel(t, conn)
				must(t, declare(ch, "q", nil))
				r := dialBeating(t, b, nil, heartbeat)
				defer r.conn.Close()
				defer close(r.out)
				r.send(1, &amqpwire.BasicConsume{Queue: "q", NoAck: true})
				for range messages {
					must(t, ch.Publish("", "q", true, false, amqp.Publishing{Body: make([]byte, size)}))
				}
				synctest.Wait()
				if test.requests {
					r.send(1, &amqpwire.QueueDeclare{Queue: "q", Passive: true})
				}
				read := int64(0)
				for range 10 {
					time.Sleep(heartbeat * time.Second / 2)
					if test.beats {
						r.out <- amqpwire.AppendHeartbeatFrame(nil)
					}
					n, _ := io.CopyN(io.Discard, r.conn, test.reads)
					read += n
				}
				synctest.Wait()
				if cut := len(nodeOf(b).Sessions()) == 1; cut != test.cut {
					t.Fatalf("connection cut: got %v, want %v", cut, test.cut)
				}
				if !test.cut {
					if _, err := io.CopyN(io.Discard, r.conn, messages*size-read); err != nil {
						t.Errorf("cannot read the remaining messages: %v", err)
					}
				}
			})
		})
	}
}
