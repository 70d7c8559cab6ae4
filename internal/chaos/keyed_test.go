package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
)

// keyedVariable is the environment variable with the URL, the queue and the record file of a worker with OrderBy. If it is set,
// the test program runs this worker.
const keyedVariable = "REPRISE_CHAOS_KEYED"

const keyedPartitions = 6

// work runs a worker with OrderBy until the process is killed. It appends a line to the file for each start and each result, so
// that the file contains the attempts of all processes in their order.
func work(arguments string) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the process of the test
		os.Exit(1)
	}()
	fields := strings.Fields(arguments)
	record, err := os.OpenFile(fields[2], os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	c, err := reprise.Dial(context.Background(), fields[0], &reprise.Config{Logger: log})
	if err != nil {
		return err
	}
	w, err := reprise.NewWorker(c, reprise.WorkerConfig{
		Queue: fields[1], Concurrency: 16, OrderBy: &reprise.Keyed{Partitions: keyedPartitions},
		Policy: reprise.Policy{MaxAttempts: 1000, Backoff: backoff.Jitter{Backoff: backoff.Fixed(300 * time.Millisecond), Spread: 0.9}},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			attempt := fmt.Sprintf("%v %v %d\n", m.Headers[reprise.HeaderKey], m.Headers["number"], m.Epoch)
			if _, err := record.WriteString("begin " + attempt); err != nil {
				return err
			}
			if m.Headers["poison"] != nil {
				os.Exit(1)
			}
			if m.Headers["slow"] != nil {
				time.Sleep(time.Second)
			}
			time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond) // the work
			if rand.IntN(6) == 0 {
				_, err := record.WriteString("fail " + attempt)
				return errors.Join(errors.New("fails"), err)
			}
			_, err := record.WriteString("done " + attempt)
			return err
		}),
	})
	if err != nil {
		return err
	}
	return w.Run(context.Background())
}

// attempts are the attempts in a record file.
type attempts struct {
	file    *os.File
	partial string // the last line, without its end
	order   *testkit.KeyOrder
	done    int // number of successes
	epochs  map[string]bool
	history history
}

func openAttempts(t *testing.T, file string) *attempts {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &attempts{file: f, order: testkit.NewKeyOrder(), epochs: map[string]bool{}}
}

// read reads the lines that were added since the last call.
func (a *attempts) read(t *testing.T) {
	t.Helper()
	content, err := io.ReadAll(a.file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(a.partial + string(content)) {
		if a.partial = line; !strings.HasSuffix(line, "\n") {
			return
		}
		a.partial = ""
		f := strings.Fields(line)
		number, err1 := strconv.Atoi(f[2])
		epoch, err2 := strconv.ParseInt(f[3], 10, 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("invalid line %q", line)
		}
		a.epochs[f[3]] = true
		a.history.add(f[0], f[1], number, epoch)
		switch {
		case f[0] == "begin":
			_ = a.order.Begin(f[1], number, epoch)
		case f[0] == "done" && a.order.Done(f[1], number, epoch) == nil:
			a.done++
		}
	}
}

// Keys keep their order although the processes of workers are killed.
func TestKilledWorkersKeepOrderOfKeys(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		if b.IsRabbitMQ && b.Version < "4" {
			return // OrderBy requires RabbitMQ 4.0
		}
		const keys, processes = 24, 3
		kills := 2 * *rounds
		messages := 4 * kills
		queue := testkit.Name(t, "keyed")
		file := filepath.Join(t.TempDir(), "attempts")
		seen := openAttempts(t, file)
		deleteKeyed(t, b.URL, queue)
		client, err := reprise.Dial(t.Context(), b.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.Background())
		var workers []*exec.Cmd
		run := func() *exec.Cmd { return startKeyed(t, b.URL, queue, file) }
		kill := func(cmd *exec.Cmd) { _ = cmd.Process.Kill(); _ = cmd.Wait() }
		for range processes {
			workers = append(workers, run())
		}
		defer func() {
			for _, cmd := range workers {
				kill(cmd)
			}
		}()
		publish := func(key string, number int) error {
			m := &reprise.Message{Headers: map[string]any{"number": int64(number)}}
			err := client.PublishKeyed(t.Context(), queue, keyedPartitions, key, m)
			if errors.Is(err, reprise.ErrUnroutable) || errors.Is(err, reprise.ErrNacked) { // not declared yet, or a busy leader
				return err
			}
			if err != nil {
				t.Errorf("cannot publish: %v", err)
			}
			return nil
		}
		testkit.Eventually(t, 2*time.Minute, func() error { return publish("key0", 1) })
		for round := range kills {
			var publishing sync.WaitGroup
			for k := range keys {
				publishing.Go(func() {
					for n := range messages / kills {
						number := round*messages/kills + n + 1
						if k == 0 && number == 1 {
							continue
						}
						testkit.Eventually(t, 2*time.Minute, func() error { return publish(fmt.Sprint("key", k), number) })
					}
				})
			}
			publishing.Wait()
			testkit.Eventually(t, 2*time.Minute, func() bool { // kill it while messages are in flight
				seen.read(t)
				return seen.done >= (round*2+1)*keys*messages/kills/2
			})
			kill(workers[round%processes])
			workers[round%processes] = run()
		}
		testkit.Eventually(t, 5*time.Minute, func() error {
			seen.read(t)
			return seen.order.Complete(keys, messages)
		})
		for _, violation := range seen.order.Violations() {
			t.Error(violation)
		}
		seen.history.check(t)
		t.Logf("%d messages, %d kills, %d epochs", keys*messages, kills, len(seen.epochs))
	})
}

// startKeyed starts a process with a worker.
func startKeyed(t *testing.T, url, queue, file string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), keyedVariable+"="+strings.Join([]string{url, queue, file}, " "))
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// A message that terminates its process is parked, although it is at the head of its key. The other messages are processed, also
// those whose attempts have ended with the process several times.
func TestPoisonMessageOfKeyIsParked(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		if b.IsRabbitMQ && b.Version < "4" {
			return // OrderBy requires RabbitMQ 4.0
		}
		queue := testkit.Name(t, "keyed")
		file := filepath.Join(t.TempDir(), "attempts")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		deleteKeyed(t, b.URL, queue)
		client, err := reprise.Dial(t.Context(), b.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.Background())
		cmd := startKeyed(t, b.URL, queue, file)
		publish := func(key string, headers map[string]any) {
			m := &reprise.Message{Headers: headers}
			testkit.Eventually(t, timeout, func() error { return client.PublishKeyed(t.Context(), queue, keyedPartitions, key, m) })
		}
		const others = 5
		for n := range others {
			publish(fmt.Sprint("other", n), map[string]any{"number": int64(1), "slow": true})
		}
		publish("key", map[string]any{"number": int64(0)})
		publish("key", map[string]any{"number": int64(1), "poison": true})
		publish("key", map[string]any{"number": int64(2)})
		poisoned := 0
		for {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			poisoned = strings.Count(string(content), "begin key 1 ")
			done := strings.Contains(string(content), "done key 2 ")
			for n := range others {
				done = done && strings.Contains(string(content), fmt.Sprint("done other", n, " 1 "))
			}
			if done {
				break
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-ended:
				cmd = startKeyed(t, b.URL, queue, file)
			case <-time.After(3 * time.Second): // look again
				_ = cmd.Process.Kill()
				<-ended
				cmd = startKeyed(t, b.URL, queue, file)
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		n, err := client.Depth(t.Context(), queue+".failed")
		if err != nil || n != 1 || poisoned < 5 || poisoned > 8 {
			t.Errorf("got %d parked messages (%v) after %d attempts, want 1 after 5 to 8 attempts", n, err, poisoned)
		}
	})
}

// deleteKeyed deletes the queues of a worker with OrderBy at the end of the test.
func deleteKeyed(t *testing.T, url, queue string) {
	t.Helper()
	t.Cleanup(func() {
		c, err := amqp.Dial(url)
		if err != nil {
			return // the broker was stopped
		}
		defer c.Close()
		ch, err := c.Channel()
		if err != nil {
			t.Error(err)
			return
		}
		for n := range keyedPartitions {
			name := fmt.Sprintf("%s.part.%d-of-%d", queue, n, keyedPartitions)
			for _, q := range []string{name, name + ".held", queue + ".failed", queue + ".part.members"} {
				if _, err := ch.QueueDelete(q, false, false, false); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// Keys keep their order although the leaders of partitions, and the nodes that the workers use, are killed.
func TestKilledNodesKeepOrderOfKeys(t *testing.T) {
	testkit.WithCluster(t, func(t *testing.T, c *testkit.Cluster) {
		const keys = 8
		order := testkit.NewKeyOrder()
		for n := range 2 {
			// Each worker begins with another node.
			hosts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(c.URL(), "amqp://guest:guest@"), "/"), ",")
			hosts = append(hosts[n:], hosts[:n]...)
			runKeyed(t, "amqp://guest:guest@"+strings.Join(hosts, ",")+"/", reprise.WorkerConfig{
				Queue: "keyed", Concurrency: 8, OrderBy: &reprise.Keyed{Partitions: keyedPartitions}, KeepDeclaring: true,
				Policy: reprise.Policy{MaxAttempts: 1000, Backoff: backoff.Fixed(100 * time.Millisecond)},
				Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
					key, number := m.Headers[reprise.HeaderKey].(string), int(m.Headers["number"].(int64))
					if err := order.Begin(key, number, m.Epoch); err != nil {
						return err
					}
					if rand.IntN(6) == 0 {
						return errors.New("fails")
					}
					return order.Done(key, number, m.Epoch)
				}),
			})
		}
		publisher, err := reprise.Dial(t.Context(), c.URLs[2], nil) // this node is not killed
		if err != nil {
			t.Fatal(err)
		}
		defer publisher.Close(context.Background())
		number := 0
		more := func(n int) {
			t.Helper()
			for range n {
				number++
				for k := range keys {
					testkit.Eventually(t, timeout, func() error {
						m := &reprise.Message{Headers: map[string]any{"number": int64(number)}}
						return publisher.PublishKeyed(t.Context(), "keyed", keyedPartitions, fmt.Sprint("key", k), m)
					})
				}
			}
		}
		more(10)
		for n, kills := 0, max(2, *rounds/3); n < kills; n++ {
			node := c.Nodes[n%2]
			c.Kill(node)
			more(10)
			if n < kills-1 { // the last node does not return
				c.Start(node)
			}
			more(10)
		}
		testkit.Eventually(t, timeout, func() error { return order.Complete(keys, number) })
		for _, violation := range order.Violations() {
			t.Error(violation)
		}
	})
}
