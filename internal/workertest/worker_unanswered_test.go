package workertest

import (
	"bytes"
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/topology"
)

// Class and method IDs of responses of a broker.
var (
	channelOpenOK = []byte{0, 20, 0, 11}
	qosOK         = []byte{0, 60, 0, 11}
	consumeOK     = []byte{0, 60, 0, 21}
)

// withholding returns an option that drops the responses of a kind, from the nth to the last, on the first consuming
// connection of the client. With one set, it drops only the nth. With andAll set, it also drops all later frames except heartbeats.
func withholding(answer []byte, nth int, one, andAll bool) func(*reprise.Config) {
	return func(c *reprise.Config) {
		memory, dials := c.Dial, int32(0)
		c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := memory(ctx, network, addr)
			if dials++; dials != consumes || err != nil {
				return conn, err
			}
			dropping := false
			return relay(conn, func(frame []byte) []byte {
				const heartbeat = 8
				if dropping && frame[0] != heartbeat {
					return nil
				}
				if bytes.HasPrefix(frame[7:], answer) {
					if nth--; nth == 0 || nth < 0 && !one {
						dropping = andAll
						return nil
					}
				}
				return frame
			}), nil
		}
	}
}

// A broker that sends heartbeats but no responses does not block a worker indefinitely. The worker repeats the request on
// another channel. If the broker does not even open this channel, the worker opens another connection.
func TestWorkerRepeatsUnansweredRequests(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer      []byte
		nth         int
		one, andAll bool
		connections int // number of connections
	}{
		"declaring":            {answer: channelOpenOK, nth: 1, connections: 3},
		"opening the channel":  {answer: channelOpenOK, nth: 2, connections: 3}, // also that of the declaration beside it
		"setting the prefetch": {answer: qosOK, nth: 1, one: true, connections: 2},
		"consuming":            {answer: consumeOK, nth: 1, andAll: true, connections: 3},
		"acknowledging":        {answer: qosOK, nth: 2, andAll: true, connections: 3},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, dial func(...func(*reprise.Config)) client, r *raw) {
				if err := dial().Declare(context.Background(), topology.Buckets{}.Topology("work")); err != nil {
					t.Fatal(err)
				}
				r.publish("", "work", amqp.Publishing{})
				c := dial(withholding(tc.answer, tc.nth, tc.one, tc.andAll))
				h := newScript(func(*reprise.Delivery) error { return nil })
				known := make(chan error, 2)
				w, err := reprise.NewWorker(c.Client, reprise.WorkerConfig{
					Queue: "work", Handler: h, Acked: func(_ *reprise.Delivery, err error) { known <- err },
				})
				if err != nil {
					t.Fatal(err)
				}
				ran := make(chan error, 1)
				go func() { ran <- w.Run(context.Background()) }()
				began := time.Now()
				if err := <-known; err != nil { // the message is acknowledged, but the worker does not know this
					r.publish("", "work", amqp.Publishing{})
					if err := <-known; err != nil {
						t.Error(err)
					}
				}
				if took := time.Since(began); took > 3*time.Minute {
					t.Errorf("duration of the recovery: got %s, want at most 3m", took)
				}
				synctest.Wait() // "connected" may be logged after the message is processed
				if n := c.log.count("connected"); n != tc.connections {
					t.Errorf("got %d connections, want %d", n, tc.connections)
				}
				if n := c.log.count("consuming interrupted"); n != 1 && n != 2 {
					t.Errorf("got %d log lines about interruptions, want 1 or 2", n)
				}
				if n := c.log.count("broker does not read"); n != tc.connections-2 {
					t.Errorf("log lines about a broker that does not read: got %d, want %d", n, tc.connections-2)
				}
				if err := w.Shutdown(context.Background()); err != nil {
					t.Error(err)
				}
				if err := <-ran; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
