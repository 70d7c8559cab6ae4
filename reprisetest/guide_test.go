package reprisetest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/reprisetest"
	"github.com/reprisemq/reprise/topology"
)

// The code in docs/testing.md is copied from this file, so the tests run it.
func TestGuideIsTested(t *testing.T) {
	plain := func(code string) string {
		var lines []string
		for line := range strings.Lines(code) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "\n")
	}
	guide, err := os.ReadFile("../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.ReadFile("guide_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(guide), "```go\n")[1:]
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(plain(string(here)), plain(code)) {
			t.Errorf("docs/testing.md contains code that is not in guide_test.go:\n%s", code)
		}
	}
	if len(blocks) < 5 {
		t.Errorf("docs/testing.md has %d code blocks, want at least 5", len(blocks))
	}
}

var errClosed = errors.New("the till is closed")

func charge(_ context.Context, m *reprise.Delivery) error {
	if m.Attempt < 3 {
		return errClosed
	}
	return nil
}

func TestChargeIsRetried(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		w := b.Work(t, reprise.WorkerConfig{
			Queue:   "orders",
			Handler: reprise.HandlerFunc(charge),
			Policy:  reprise.Policy{MaxAttempts: 5, Backoff: backoff.Fixed(4 * time.Hour)},
		})
		b.Publish(t, &reprise.Message{RoutingKey: "orders", Body: []byte("order 17")})
		b.Drain(t)

		want := []time.Duration{4 * time.Hour, 4 * time.Hour}
		if got := w.Attempts().Delays(); !slices.Equal(got, want) {
			t.Errorf("retried after %v, want %v", got, want)
		}
		if parked := b.Parked(t, "orders"); len(parked) > 0 {
			t.Errorf("parked: %v", parked[0].Errors)
		}
	})
}

// run is the body of a main function. In production, url is the address of a real broker.
func run(ctx context.Context, url string, config *reprise.Config) error {
	client, err := reprise.Dial(ctx, url, config)
	if err != nil {
		return err
	}
	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{Queue: "orders", Handler: reprise.HandlerFunc(charge)})
	if err != nil {
		return errors.Join(err, client.Close(context.Background()))
	}
	return errors.Join(worker.Run(ctx), client.Close(context.Background()))
}

func TestProgram(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, b.URL(), &reprise.Config{Dial: b.DialContext}) }()
		b.Advance(0) // until it consumes
		b.Publish(t, &reprise.Message{RoutingKey: "orders"})
		b.Drain(t)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestChargeIsMadeOnce(t *testing.T) {
	t.Parallel()
	charged := make(map[string]int)
	once := func(_ context.Context, m *reprise.Delivery) error {
		if charged[m.MessageID] == 0 { // the tested condition
			charged[m.MessageID]++
		}
		return nil
	}
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: reprise.HandlerFunc(once)})
		b.LoseAcks(1)
		b.Publish(t, &reprise.Message{RoutingKey: "orders", MessageID: "17"})
		b.Drain(t)
		if attempts := len(w.Attempts()); attempts != 2 || charged["17"] != 1 {
			t.Errorf("got %d charges in %d attempts, want 1 in 2", charged["17"], attempts)
		}
	})
}

func TestPublisherSurvivesBrokerOutage(t *testing.T) {
	t.Parallel()
	reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, topology.Topology{Queues: []topology.Queue{{Name: "orders"}}})
		client := b.Client(t, &reprise.Config{ConfirmTimeout: time.Hour})
		b.Refuse(10 * time.Minute) // refuses new connections
		b.Cut()                    // closes all connections
		if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: "orders"}); err != nil {
			t.Error(err)
		}
	})
}

func TestOtherProcess(t *testing.T) {
	if url := os.Getenv("AMQP_URL"); url != "" {
		otherProcess(t, url)
		return
	}
	t.Parallel()
	program := []string{os.Args[0], "-test.run=^TestOtherProcess$"}
	b := reprisetest.Listen(t)
	w := b.Work(t, reprise.WorkerConfig{
		Queue:   "orders",
		Handler: reprise.HandlerFunc(charge),
		Policy:  reprise.Policy{Backoff: backoff.Fixed(time.Millisecond)},
	})
	cmd := exec.CommandContext(t.Context(), program[0], program[1:]...)
	cmd.Env = append(os.Environ(), "AMQP_URL="+b.URL())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b.Drain(t)
	if n := len(w.Attempts().Of("from elsewhere")); n != 3 {
		t.Errorf("got %d attempts, want 3", n)
	}
}

// otherProcess behaves like a process that knows only the URL.
func otherProcess(t *testing.T, url string) {
	client, err := reprise.Dial(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = client.Publish(t.Context(), &reprise.Message{RoutingKey: "orders", MessageID: "from elsewhere"})
	if err := errors.Join(err, client.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func TestAnyNumberOfAttempts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want, got := rapid.IntRange(1, 5).Draw(t, "attempts"), 0
		reprisetest.Run(new(testing.T), func(t *testing.T, b *reprisetest.Broker) {
			w := b.Work(t, reprise.WorkerConfig{
				Queue: "orders", Policy: reprise.Policy{MaxAttempts: want},
				Handler: reprise.HandlerFunc(func(context.Context, *reprise.Delivery) error { return errClosed }),
			})
			b.Publish(t, &reprise.Message{RoutingKey: "orders"})
			b.Drain(t)
			got = len(w.Attempts())
		})
		if got != want {
			t.Fatalf("got %d attempts, want %d", got, want)
		}
	})
}

func TestShopUser(t *testing.T) {
	config := reprisetest.Config{Broker: broker.Config{Users: map[string]string{"shop": "secret"}}}
	config.Run(t, func(t *testing.T, b *reprisetest.Broker) {
		b.Declare(t, topology.Topology{Queues: []topology.Queue{{Name: "orders"}}})
		b.Publish(t, &reprise.Message{RoutingKey: "orders", UserID: "shop"})
	})
}

func BenchmarkCharge(b *testing.B) {
	for b.Loop() {
		reprisetest.Run(new(testing.T), func(t *testing.T, b *reprisetest.Broker) {
			b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: reprise.HandlerFunc(charge), Policy: every(time.Hour, 5)})
			b.Publish(t, &reprise.Message{RoutingKey: "orders"})
			b.Drain(t)
		})
	}
}
