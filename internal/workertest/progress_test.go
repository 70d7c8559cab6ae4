package workertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testkit"
)

// A handler reports its progress, through contexts that middleware derives. The next attempt begins without a progress.
func TestListShowsProgress(t *testing.T) {
	t.Parallel()
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		r := newRaw(t, b.URL)
		queue, strategy := pausable(r)
		c := dial(t, b.URL, announced)
		reported, release := make(chan struct{}), make(chan struct{})
		stop := start(t, c, reprise.WorkerConfig{
			Queue: queue, Policy: quick(2), Strategy: strategy, Middleware: []reprise.Middleware{reprise.Timeout(time.Hour)},
			Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
				if m.Attempt == 1 {
					reprise.Progress(ctx, 0.4, "page 4\nof 10")
					reprise.Progress(ctx, -1, "")
				}
				reported <- struct{}{}
				<-release
				return errScripted
			}),
		})
		list, _ := watching(t, dial(t, b.URL))
		listed(t, list, queue, 1, protocol.WorkerConsuming)
		shows := func(attempt int, want string) {
			t.Helper()
			<-reported
			control(t, c, protocol.Command{Do: protocol.DoReport})
			testkit.Eventually(t, timeout, func() error {
				w := workersOf(list, queue)[0]
				if len(w.Handling) != 1 || w.Handling[0].Attempt != attempt {
					return fmt.Errorf("got %+v, want attempt %d", w.Handling, attempt)
				}
				got := "none"
				if p := w.Handling[0].Progress; p != nil {
					got = fmt.Sprint(p.Fraction, " ", p.Text, " ", p.At.Before(w.Started))
				}
				if got != want {
					return fmt.Errorf("progress: got %s, want %s", got, want)
				}
				return nil
			})
			release <- struct{}{}
		}
		r.publish("", queue, amqp.Publishing{})
		shows(1, "0.4 page 4 of 10 false")
		shows(2, "none")
		if err := stop(); err != nil {
			t.Error(err)
		}
		reprise.Progress(t.Context(), 1, "without a worker")
	})
}
