package docstest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// runtimes lists the handlers in examples/handlers. The services listen on $PORT.
var runtimes = []struct{ name, process, service string }{
	{"python", "/usr/bin/python3 handler.py", "/usr/bin/python3 service.py"},
	{"node", "node handler.js", "node service.js"},
	{"php", "php handler.php", "php -S 127.0.0.1:$PORT service.php"},
	{"ruby", "ruby handler.rb", "ruby service.rb"},
}

const patience = 5 * time.Minute

// journeysBin is the directory of the program reprise, which buildOnce builds for all journeys. TestMain removes it.
var journeysBin string

var buildOnce = sync.OnceValue(func() (err error) {
	if journeysBin, err = os.MkdirTemp("", "journeys"); err == nil {
		err = exec.Command("go", "build", "-o", journeysBin, "../../cmd/reprise").Run()
	}
	return err
})

// A journey is a directory of a user, with the handlers of all languages.
type journey struct {
	*testing.T
	dir string
}

func newJourney(t *testing.T, interpreter string) journey {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped with -short (starts programs in other languages)")
	}
	if _, err := exec.LookPath(interpreter); err != nil {
		t.Skipf("%s not found (install it, or run make test)", interpreter)
	}
	j := journey{t, t.TempDir()}
	must(t, os.CopyFS(j.dir, os.DirFS("../../examples/handlers")))
	return j
}

func (j journey) write(file, text string) {
	j.Helper()
	must(j.T, os.WriteFile(filepath.Join(j.dir, file), []byte(text), 0o600))
}

// reprise returns a command of the user.
func (j journey) reprise(args ...string) *exec.Cmd {
	j.Helper()
	must(j.T, buildOnce())
	c := exec.Command(filepath.Join(journeysBin, "reprise"), args...)
	c.Dir = j.dir
	return c
}

// run runs a command of the user, which must succeed, and returns its output.
func (j journey) run(args ...string) string {
	j.Helper()
	out, err := j.reprise(args...).CombinedOutput()
	if err != nil {
		j.Fatalf("reprise %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// up is a running reprise up.
type up struct {
	journey
	cmd    *exec.Cmd
	exited chan struct{}

	mu     sync.Mutex
	events []event
}

// event is a line of the log. The message charged replaces handler output, and has the ID that the handler wrote.
type event struct {
	Msg, Text, URL, Error string
	ID                    string `json:"message_id"`
	Prefetch              int
}

// start runs reprise up until the test ends.
func (j journey) start(file string) *up {
	j.Helper()
	u := &up{journey: j, cmd: j.reprise("up", "-c", file, "--log", "json", "--log-level", "debug"), exited: make(chan struct{})}
	log, err := u.cmd.StderrPipe()
	must(j.T, err)
	must(j.T, u.cmd.Start())
	go func() {
		defer close(u.exited)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			e := event{Text: lines.Text()}
			_ = json.Unmarshal(lines.Bytes(), &e) // other lines are texts
			if id, is := strings.CutPrefix(e.Text, "charged "); is && e.Msg == "handler output" {
				e.Msg, e.ID = "charged", id
			}
			u.mu.Lock()
			u.events = append(u.events, e)
			u.mu.Unlock()
		}
		_ = u.cmd.Wait()
	}()
	j.Cleanup(func() {
		u.stop()
		if j.Failed() {
			j.Logf("last events of the log: %+v", u.events[max(0, len(u.events)-20):])
		}
	})
	u.await("consuming", 1)
	return u
}

func (u *up) stop() {
	_ = u.cmd.Process.Signal(syscall.SIGTERM)
	<-u.exited
}

// count returns the number of events with a message, for each message ID.
func (u *up) count(msg string) map[string]int {
	u.mu.Lock()
	defer u.mu.Unlock()
	found := map[string]int{}
	for _, e := range u.events {
		if e.Msg == msg {
			found[e.ID]++
		}
	}
	return found
}

func (u *up) await(msg string, messages int) {
	u.Helper()
	testkit.Eventually(u.T, patience, func() bool {
		select {
		case <-u.exited:
			u.Fatalf("reprise up has exited: %+v", u.events)
		default:
		}
		return len(u.count(msg)) >= messages
	})
}

// client returns a client of the embedded broker.
func (u *up) client() *reprise.Client {
	u.Helper()
	return u.dial(u.find(func(e event) bool { return strings.HasPrefix(e.URL, "amqp://") }).URL)
}

// find returns the first event that matches, or nil.
func (u *up) find(match func(event) bool) *event {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i := slices.IndexFunc(u.events, match); i >= 0 {
		return &u.events[i]
	}
	return nil
}

func (j journey) dial(url string) *reprise.Client {
	j.Helper()
	client, err := reprise.Dial(j.Context(), url, nil)
	must(j.T, err)
	j.Cleanup(func() { client.Close(context.Background()) })
	return client
}

// publish publishes orders with the message IDs 0 to n-1, which are also the names of their customers: the output of a process
// does not have the message ID in the log.
func publish(ctx context.Context, client *reprise.Client, queue string, n int) error {
	for i := range n {
		id := strconv.Itoa(i)
		if err := client.Publish(ctx, &reprise.Message{RoutingKey: queue, MessageID: id, Body: []byte(`{"customer": "` + id + `"}`)}); err != nil {
			return err
		}
	}
	return nil
}

// queue returns a new name of a work queue. Its objects are deleted when the test ends.
func (j journey) queue(b testkit.Target) string {
	j.Helper()
	queue := testkit.Name(j.T, "orders")
	j.Cleanup(func() {
		conn, err := amqp.Dial(b.URL)
		must(j.T, err)
		defer conn.Close()
		ch, err := conn.Channel()
		must(j.T, err)
		for _, name := range []string{queue, topology.FailedQueue(queue), "reprise.paused." + queue, queue + ".wait.1000-1250"} {
			_, err := ch.QueueDelete(name, false, false, false)
			must(j.T, err)
		}
	})
	return queue
}

// handlers returns the processes that handle messages.
func (u *up) handlers() (pids []int) {
	u.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must(u.T, err)
	for _, file := range stats {
		text, _ := os.ReadFile(file) // the process may have exited
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(u.cmd.Process.Pid) {
			continue
		}
		if line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline")); strings.Contains(string(line), "handler.") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			must(u.T, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

func yamlList(command string) string { return "[" + strings.Join(strings.Fields(command), ", ") + "]" }

// Status 429 with Retry-After delays the retry by that time instead of the backoff.
func TestJourneyRetryAfter(t *testing.T) {
	t.Parallel()
	for _, l := range runtimes {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			j := newJourney(t, strings.Fields(l.service)[0])
			free, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			_, port, _ := net.SplitHostPort(free.Addr().String())
			must(t, free.Close())
			service := exec.Command("sh", "-c", "exec "+l.service)
			service.Dir, service.Env = j.dir, append(os.Environ(), "PORT="+port)
			must(t, service.Start())
			t.Cleanup(func() {
				_ = service.Process.Kill()
				_ = service.Wait()
			})
			testkit.Eventually(t, patience, func() error {
				conn, err := net.Dial("tcp", "127.0.0.1:"+port)
				if err == nil {
					err = conn.Close()
				}
				return err
			})
			j.write("reprise.yaml", "{listen: '127.0.0.1:0', data: memory, workers: [{queue: orders, backoff: {fixed: 1h}, http: 'http://127.0.0.1:"+port+"/orders'}]}")
			u := j.start("reprise.yaml")
			must(t, publish(t.Context(), u.client(), "orders", 1))
			u.await("processed", 1)
			if retries := u.count("retry")["0"]; retries != 2 {
				t.Errorf("got %d retries, want 2", retries)
			}
		})
	}
}

// A killed process affects only the messages in flight to it, and none is lost.
func TestJourneyKilledProcess(t *testing.T) {
	t.Parallel()
	const messages, kills, processes, each = 1000, 8, 3, 8
	for _, l := range runtimes {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			j := newJourney(t, strings.Fields(l.process)[0])
			j.write("reprise.yaml", fmt.Sprintf(
				"{listen: '127.0.0.1:0', data: memory, workers: [{queue: orders, concurrency: %d, attempts: 100, backoff: {fixed: 1ms}, process: {command: %s, processes: %d}}]}",
				processes*each, yamlList(l.process), processes))
			u := j.start("reprise.yaml")
			published := make(chan error, 1)
			client := u.client()
			go func() { published <- publish(t.Context(), client, "orders", messages) }()
			for i := range kills {
				var pids []int
				u.await("processed", messages*i/kills)
				testkit.Eventually(t, patience, func() bool { pids = u.handlers(); return len(pids) > 0 })
				_ = syscall.Kill(pids[rand.IntN(len(pids))], syscall.SIGKILL)
			}
			u.await("processed", messages)
			must(t, <-published)
			retried, failed := u.count("retry"), 0
			u.await("charged", messages) // the log can have the output after the result
			charged := u.count("charged")
			for id, n := range u.count("processed") {
				failed += retried[id]
				if n != 1 || charged[id] < 1 || charged[id] > 1+retried[id] {
					t.Errorf("message %s: processed %d times, charged %d times, retried %d times", id, n, charged[id], retried[id])
				}
			}
			if failed > kills*each || len(u.count("parked")) > 0 {
				t.Errorf("%d attempts failed, at most %d were in flight to killed processes; parked: %v", failed, kills*each, u.count("parked"))
			}
			t.Logf("%d attempts failed", failed)
		})
	}
}

// Reloads replace the processes while they handle messages. No message is lost, and none is handled twice.
func TestJourneyReload(t *testing.T) {
	t.Parallel()
	const messages, rounds = 2500, 10
	for _, l := range runtimes {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			j := newJourney(t, strings.Fields(l.process)[0])
			write := func(round int) {
				j.write("reprise.yaml", fmt.Sprintf("{listen: '127.0.0.1:0', data: memory, workers: [{queue: orders, concurrency: %d, process: %s}]}",
					4+round%3, yamlList(l.process)))
			}
			write(0)
			u := j.start("reprise.yaml")
			published := make(chan error, 1)
			client := u.client()
			go func() { published <- publish(t.Context(), client, "orders", messages) }()
			for round := range rounds {
				u.await("processed", messages*round/rounds)
				write(1 + round)
				if out := j.run("reload"); !strings.Contains(out, "changed orders") {
					t.Errorf("reload printed %q", out)
				}
			}
			u.await("processed", messages)
			must(t, <-published)
			u.await("charged", messages)
			for id, n := range u.count("charged") {
				if n != 1 {
					t.Errorf("message %s was handled %d times", id, n)
				}
			}
		})
	}
}

// Two replicas run from one file on one host. If one of them is killed, the other one handles its messages again.
func TestJourneyReplicas(t *testing.T) {
	t.Parallel()
	const messages, concurrency = 1000, 8
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		b.Require(t)
		j := newJourney(t, "/usr/bin/python3")
		queue := j.queue(b)
		j.write("reprise.yaml", fmt.Sprintf("{broker: '%s', metrics: '127.0.0.1:0', workers: [{queue: %s, concurrency: %d, process: %s}]}",
			b.URL, queue, concurrency, yamlList(runtimes[0].process)))
		first, second := j.start("reprise.yaml"), j.start("reprise.yaml")
		client := j.dial(b.URL)
		published := make(chan error, 1)
		go func() { published <- publish(t.Context(), client, queue, messages) }()
		first.await("processed", messages/10)
		second.await("processed", messages/10)
		must(t, first.cmd.Process.Kill())
		<-first.exited
		must(t, <-published)
		testkit.Eventually(t, patience, func() bool {
			done := first.count("processed")
			for id := range second.count("processed") {
				done[id]++
			}
			return len(done) == messages
		})
		repeated, before := 0, first.count("charged")
		for id, n := range second.count("charged") {
			repeated += n + before[id] - 1
		}
		held := 0
		first.find(func(e event) bool { // with RabbitMQ 3.10, the first prefetch is 1
			if e.Msg == "consuming" {
				held = max(held, e.Prefetch)
			}
			return false
		})
		if repeated > held {
			t.Errorf("%d messages were handled twice, at most %d were not acknowledged by the killed replica", repeated, held)
		}
	})
}

// A user moves from the embedded broker to RabbitMQ with the messages that wait for a retry or have failed, and the new process handles
// them.
func TestJourneyToRabbitMQ(t *testing.T) {
	t.Parallel()
	testkit.EachManaged(t, func(t *testing.T, b testkit.Target, api string) {
		j := newJourney(t, "/usr/bin/python3")
		queue := j.queue(b)
		j.write("reprise.yaml", "{listen: '127.0.0.1:0', workers: [{queue: "+queue+", backoff: {fixed: 1s}, exec: [sh, -c, 'grep -q waits || exit 65; exit 1']}]}")
		before := j.start("reprise.yaml")
		client := before.client()
		for _, customer := range []string{"waits", "failed"} {
			must(t, client.Publish(t.Context(), &reprise.Message{RoutingKey: queue, Body: []byte(`{"customer": "` + customer + `"}`)}))
		}
		before.await("retry", 1)
		before.await("parked", 1)
		before.stop()

		j.write("reprise.yaml", fmt.Sprintf("{broker: '%s', workers: [{queue: %s, process: %s}]}", b.URL, queue, yamlList(runtimes[0].process)))
		now := j.start("reprise.yaml")
		if now.find(func(e event) bool { return strings.HasPrefix(e.Msg, "the embedded broker has left 2 messages") }) == nil {
			t.Error("no warning of the messages that the embedded broker has left")
		}
		management := strings.Replace(api, "://", "://guest:guest@", 1)
		j.run("move", "--from", "reprise-data", "--to", b.URL, "--to-management", management, "--queue", queue, "--yes")
		j.run("redrive", "--url", b.URL, "--from", topology.FailedQueue(queue), "--to", queue, "--yes")
		now.await("charged", 2)
		if charged := now.count("charged"); charged["waits"] != 1 || charged["failed"] != 1 {
			t.Errorf("the new process handled %v, want both messages once", charged)
		}
	})
}

// The health checks of the images succeed while reprise up runs.
func TestJourneyHealthCheck(t *testing.T) {
	t.Parallel()
	j := newJourney(t, "curl") // docs/languages/java.md
	j.write("reprise.yaml", "{listen: '127.0.0.1:0', data: memory, metrics: '127.0.0.1:0', workers: [{queue: orders, exec: [cat]}]}")
	u := j.start("reprise.yaml")
	_, port, _ := strings.Cut(u.find(func(e event) bool { return e.Msg == "metrics and health" }).URL, "127.0.0.1:")
	pages, err := filepath.Glob("../../docs/languages/*.md")
	must(t, err)
	var checks []string
	for _, page := range pages {
		text, err := os.ReadFile(page)
		must(t, err)
		if _, check, found := strings.Cut(string(text), "\nHEALTHCHECK CMD "); found {
			check, _, _ = strings.Cut(check, "\n")
			checks = append(checks, strings.ReplaceAll(check, "9090", port))
		}
	}
	for _, check := range checks {
		if out, err := exec.Command("sh", "-c", check).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", check, err, out)
		}
	}
	u.stop()
	for _, check := range checks {
		if exec.Command("sh", "-c", check).Run() == nil {
			t.Errorf("%s: succeeds without reprise up", check)
		}
	}
	if len(checks) != 5 {
		t.Errorf("got %d health checks, want those of five languages", len(checks))
	}
}
