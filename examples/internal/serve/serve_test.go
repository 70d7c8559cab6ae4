package serve_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/examples/internal/serve"
	"github.com/reprisemq/reprise/examples/internal/stage"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

func TestFails(t *testing.T) {
	for body, want := range map[string]int{
		"":                       7,
		"fails":                  7,
		"fails=2":                2,
		"an order, fails = 0":    0,
		`{"job":7,"fails":2}`:    2,
		`{"fails": -1}`:          serve.Never,
		"fails=-2":               7,
		"fails=2.":               2,
		"fails=12345678901":      7,
		"never fails:1 \xff\x00": 1,
		"unfails=3":              7,
	} {
		if got := serve.Fails([]byte(body), 7); got != want {
			t.Errorf("failing attempts of %q: got %d, want %d", body, got, want)
		}
	}
}

func service(out *strings.Builder) serve.Service {
	design := preset.Staking{Queues: []string{"orders"}}
	return serve.Service{
		Design: design.Topology(), Flags: "-type", Intro: "Working.", Out: out,
		Workers: []reprise.WorkerConfig{{Queue: "orders", Strategy: design.Strategy(), Policy: reprise.Policy{MaxAttempts: 3}}},
	}
}

func on(b *reprisetest.Broker) *stage.Stage {
	return &stage.Stage{URL: b.URL(), DialContext: b.DialContext, Shared: true, Logger: slog.New(slog.DiscardHandler)}
}

// publish publishes messages with another client, as another program would.
func publish(t *testing.T, b *reprisetest.Broker, queue string, messages ...amqp.Publishing) {
	t.Helper()
	conn, err := amqp.DialConfig(b.URL(), amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		return b.DialContext(t.Context(), network, addr)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if err := ch.PublishWithContext(t.Context(), "", queue, true, false, m); err != nil {
			t.Fatal(err)
		}
	}
}

// The service prints the result of each message, and the totals after an interrupt.
func TestServicePrintsResults(t *testing.T) {
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		var out strings.Builder
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- service(&out).Run(ctx, on(b)) }()
		synctest.Wait()
		publish(t, b, "orders", amqp.Publishing{MessageId: "1", Body: []byte("one")},
			amqp.Publishing{MessageId: "2", Body: []byte("fails=1")},
			amqp.Publishing{Body: []byte(`{"fails":-1}`)})
		b.Advance(time.Minute)
		interrupt()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		got := regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d  `).ReplaceAllString(out.String(), "")
		if !strings.HasPrefix(got, "Working.\n\n") || !strings.HasSuffix(got, "\n\nbalance: 6 received = 2 done + 3 to retry + 1 parked\n") {
			t.Errorf("output must end with 6 received = 2 done + 3 to retry + 1 parked:\n%s", &out)
		}
		for _, want := range []string{
			"orders  1  attempt 1: done\n",
			"orders  2  attempt 1: failed, retry in 5s\n",
			"orders  2  attempt 2: done\n",
			`orders  "{\"fails\":-1}"  attempt 1: failed, retry in 5s` + "\n",
			"attempt 3: parked: attempt 3 fails, like all attempts\n",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("line %q not found in:\n%s", want, &out)
			}
		}
	})
}

func TestServiceReturnsSetupErrors(t *testing.T) {
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		var out strings.Builder
		alone := on(b)
		alone.Shared = false
		if err := service(&out).Run(t.Context(), alone); !errors.Is(err, serve.ErrAlone) {
			t.Errorf("unreachable broker: got %v, want ErrAlone", err)
		}
		client, err := reprise.Dial(t.Context(), b.URL(), &reprise.Config{Dial: b.DialContext})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(t.Context())
		if err := client.Declare(t.Context(), preset.Staking{Queues: []string{"orders"}, QueueType: "classic"}.Topology()); err != nil {
			t.Fatal(err)
		}
		err = service(&out).Run(t.Context(), on(b))
		if err == nil || !strings.Contains(err.Error(), "(here, pass its settings with -type)") || out.Len() > 0 {
			t.Errorf("queues of another type: got %v, output %q, want advice to use -type and no output", err, &out)
		}
		bad := service(&out)
		bad.Workers = append(bad.Workers, reprise.WorkerConfig{Queue: ""})
		bad.Design = preset.Staking{Queues: []string{"others"}}.Topology()
		if err := bad.Run(t.Context(), on(b)); err == nil || !strings.Contains(err.Error(), "Queue") {
			t.Errorf("worker without a queue: got %v, want an error about Queue", err)
		}
	})
}

// The quorum queues of a program that sets only the queue type differ from the queues of the preset, but match the
// queues that Plain returns.
func TestPlainMatchesQueuesOfOtherPrograms(t *testing.T) {
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		design := preset.WorkRetry{QueueType: "quorum"}
		theirs := topology.Topology{
			Exchanges: design.Topology().Exchanges,
			Queues: []topology.Queue{
				{Name: "WorkQueue", Args: topology.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "RetryExchange"}},
				{Name: "RetryQueue", Args: topology.Table{"x-queue-type": "quorum", "x-dead-letter-exchange": "WorkExchange", "x-message-ttl": int32(300000)}},
			},
		}
		client := b.Client(t, nil)
		if err := client.Declare(t.Context(), theirs); err != nil {
			t.Fatal(err)
		}
		if err := client.Declare(t.Context(), design.Topology()); err == nil {
			t.Error("declaration of the preset succeeded, so Plain has no effect")
		}
		var out strings.Builder
		s := serve.Service{
			Design: serve.Plain(design.Topology(), "WorkQueue.failed"), Out: &out,
			Workers: []reprise.WorkerConfig{{Queue: "WorkQueue", Strategy: design.Strategy()}},
		}
		ctx, interrupt := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx, on(b)) }()
		synctest.Wait()
		publish(t, b, "WorkQueue", amqp.Publishing{MessageId: "1", Body: []byte("fails=1")})
		b.Advance(10 * time.Minute)
		interrupt()
		if err := <-ended; err != nil || !strings.Contains(out.String(), "1  attempt 2: done\n") {
			t.Errorf("got %v and output without \"1  attempt 2: done\":\n%s", err, &out)
		}
		for _, q := range s.Design.Queues {
			if _, guarded := q.Args["x-delivery-limit"]; guarded != (q.Name == "WorkQueue.failed") {
				t.Errorf("x-delivery-limit must be set only on WorkQueue.failed: queue %s has %v", q.Name, q.Args)
			}
		}
	})
}
