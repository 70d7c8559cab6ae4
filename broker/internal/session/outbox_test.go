package session

import (
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/reprisemq/reprise/broker/internal/budget"
)

// offerer offers messages to an outbox, and continues when the outbox resumes it.
type offerer struct {
	out   *outbox
	size  int
	taken atomic.Int64
}

func (o *offerer) offer() {
	for o.out.offer(func(b []byte) []byte { return append(b, make([]byte, o.size)...) }, body{}, o) {
		o.taken.Add(1)
	}
}

func (o *offerer) resume() { o.offer() }

// While a client reads slowly, the batch that is being written counts against the limit. The outbox accepts one message
// beyond the limit. It accepts the next message when space is available.
func TestOutboxAcceptsOneMessageAboveLimit(t *testing.T) {
	for _, size := range []int{100_000, outboxLimit, 2 * outboxLimit} {
		synctest.Test(t, func(t *testing.T) {
			account := budget.NewConnections(64*outboxLimit, 64*outboxLimit).Open(func(budget.Excess) { t.Error("memory limit exceeded") })
			client, server := io.Pipe()
			o := newOutbox(account)
			ended := make(chan error)
			go func() { ended <- o.run(server) }()
			messages := &offerer{out: o, size: size}
			for range 2 { // the second time, while the outbox writes
				messages.offer()
				synctest.Wait()
			}
			read := int64(0)
			for range 10 {
				synctest.Wait()
				held := messages.taken.Load()*int64(size) - read
				if most := int64(outboxLimit + size); held <= 0 || held >= most || account.Used() > most {
					t.Errorf("waiting bytes: got %d (account: %d), want 1 to %d", held, account.Used(), most)
				}
				n, err := io.CopyN(io.Discard, client, int64(size))
				if err != nil {
					t.Fatal(err)
				}
				read += n
			}
			_ = client.Close()
			if err := <-ended; err != io.ErrClosedPipe {
				t.Errorf("run: got %v, want ErrClosedPipe", err)
			}
		})
	}
}
