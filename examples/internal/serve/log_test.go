package serve_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/reprisetest"
)

// The order of the results differs from the order of the attempts, because the worker reports a retry only after the
// confirm of the copy. In the meantime, it has processed later messages.
func TestServicePrintsBodiesOfMessagesWithoutIDs(t *testing.T) {
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		var out strings.Builder
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- service(&out).Run(ctx, on(b)) }()
		synctest.Wait()
		var messages []amqp.Publishing
		for i := range 10 {
			messages = append(messages, amqp.Publishing{Body: fmt.Appendf(nil, "message %d fails=%d", i, (i+1)%2)})
		}
		publish(t, b, "orders", messages...)
		b.Advance(time.Second)
		interrupt()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for i := range 10 {
			want := fmt.Sprintf(`orders  "message %d fails=1"  attempt 1: failed, retry in 5s`, i)
			if i%2 == 1 {
				want = fmt.Sprintf(`orders  "message %d fails=0"  attempt 1: done`, i)
			}
			if n := strings.Count(out.String(), want+"\n"); n != 1 {
				t.Errorf("line printed %d times, want 1: %s", n, want)
			}
		}
		if !strings.HasSuffix(out.String(), "\nbalance: 10 received = 5 done + 5 to retry + 0 parked\n") || t.Failed() {
			t.Errorf("output must end with 10 received = 5 done + 5 to retry + 0 parked:\n%s", &out)
		}
	})
}
