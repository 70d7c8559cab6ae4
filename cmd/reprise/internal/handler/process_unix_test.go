//go:build unix

package handler

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// Environment variables that make the test binary run obey, or record the effects of messages in a file.
const (
	obeying   = "HANDLER_TEST_OBEYS"
	recording = "HANDLER_TEST_RECORDS"
)

func init() {
	switch {
	case os.Getenv(obeying) != "":
		os.Exit(obey(os.Stdin, os.Stdout, os.Stderr, nil))
	case os.Getenv(recording) != "":
		recordEffects(os.Getenv(recording))
		os.Exit(0)
	}
}

// recordEffects appends the message ID of each message to a file, and then answers.
func recordEffects(file string) {
	effects, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	fmt.Println(`{"ready":true}`)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var m struct {
			ID        uint64
			MessageID string `json:"message_id"`
		}
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			panic(err)
		}
		_, _ = fmt.Fprintln(effects, m.MessageID) // one write, which a SIGKILL does not divide
		fmt.Printf(`{"id":%d,"result":"done"}`+"\n", m.ID)
	}
}

// running returns a started Process whose program is this test binary.
func running(t *testing.T, variable string, cfg ProcessConfig) *Process {
	t.Helper()
	cfg.Command, cfg.Env = []string{os.Args[0]}, append(cfg.Env, variable, "GORACE=atexit_sleep_ms=0")
	p := newProcess(t, cfg)
	if err := p.Start(bounded(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// pids returns the IDs of the processes that receive messages.
func (p *Process) pids() (all []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.children {
		if c.serving {
			all = append(all, c.program.pid)
		}
	}
	return all
}

// A started program passes its facts, its output and its exit code like one in virtual time.
func TestProcessRunsProgram(t *testing.T) {
	var log testkit.Buffer
	p := running(t, obeying+"=1", ProcessConfig{ExecConfig: ExecConfig{Logger: textLog(&log), Dir: t.TempDir()}})
	for text, want := range map[string]string{"done": "ack", "park no": "park", "later 5": "retry after 5s", "exit 70 no database": "retry", "done ": "ack"} {
		if err := p.Handle(bounded(t), body(text)); kind(err) != want {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	if used := residentMemory(os.Getpid()); used < 1<<20 {
		if _, err := os.Stat("/proc/self/statm"); err == nil {
			t.Errorf("resident memory of the test: got %d", used)
		}
	}
	first := p.pids()
	if err := p.Handle(bounded(t), body("exit 70 no database")); err == nil || err.Error() != filepath.Base(os.Args[0])+": exit status 70: no database" {
		t.Errorf("got %v", err)
	}
	testkit.Eventually(t, patience, func() bool { return len(p.pids()) == 1 })
	last := p.pids()
	if len(first) == 1 && first[0] == last[0] {
		t.Errorf("process %d exited and still serves", first[0])
	}
	p.Close()
	waitForExit(t, strconv.Itoa(last[0]))
	if !strings.Contains(log.String(), `msg="handler output" stream=stderr text="no database"`) {
		t.Errorf("got log %s", log.String())
	}
}

// Close ends the children of a process, too, and a process that ignores SIGTERM.
func TestProcessLeavesNoChildren(t *testing.T) {
	dir := t.TempDir()
	p := newProcess(t, ProcessConfig{ExecConfig: ExecConfig{Dir: dir, Grace: 50 * time.Millisecond, Command: []string{"sh", "-c", `
		trap '' TERM
		sleep 1000 & echo $! > child
		echo '{"ready":true}'
		while :; do sleep 1; done`}}})
	if err := p.Start(bounded(t)); err != nil {
		t.Fatal(err)
	}
	pids := p.pids()
	p.Close()
	waitForExit(t, waitFor(t, filepath.Join(dir, "child")))
	waitForExit(t, strconv.Itoa(pids[0]))
}

// A child that holds the stdout of a process delays neither the failure of its messages nor the next process.
func TestProcessExitsBeforeChild(t *testing.T) {
	dir := t.TempDir()
	p := newProcess(t, ProcessConfig{ExecConfig: ExecConfig{Dir: dir, Grace: time.Hour, Command: []string{"sh", "-c", `
		echo '{"ready":true}'
		read line
		sleep 1000 & echo $! > child
		echo '{"id":1,"result":"park","error":"last words"}'
		read line
		exit 3`}}})
	if err := p.Start(bounded(t)); err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if err := p.Handle(bounded(t), body("x")); kind(err) != "park" {
		t.Errorf("first message: got %v", err)
	}
	if err := p.Handle(bounded(t), body("x")); err == nil || err.Error() != "sh: exit status 3" {
		t.Errorf("second message: got %v", err)
	}
	waitForExit(t, waitFor(t, filepath.Join(dir, "child")))
}

// After Kill, messages in flight do not count as failed.
func TestProcessKill(t *testing.T) {
	p := running(t, obeying+"=1", ProcessConfig{})
	pid := p.pids()[0]
	ctx, cancel := context.WithCancel(bounded(t))
	result := make(chan error, 1)
	go func() { result <- p.Handle(ctx, body("hold")) }()
	testkit.Eventually(t, patience, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.children[0].busy == 1
	})
	p.Kill()
	waitForExit(t, strconv.Itoa(pid))
	cancel()
	if err := <-result; err != context.Canceled { //nolint:errorlint // the cause itself
		t.Errorf("got %v", err)
	}
}

// Processes are killed at random while they handle messages. Each message is done once; it is only handled again if its process
// was killed before the answer.
func TestProcessKilledUnderLoad(t *testing.T) {
	const messages, kills, processes, concurrency = 3000, 25, 3, 48
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		b.Require(t)
		ctx := bounded(t)
		queue, file := testkit.Name(t, "killed"), filepath.Join(t.TempDir(), "effects")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		p := running(t, recording+"="+file, ProcessConfig{Processes: processes, Concurrency: concurrency})
		var mu sync.Mutex
		done, retried := map[string]int{}, map[string]int{}
		total := 0
		client, err := reprise.Dial(ctx, b.URL, &reprise.Config{Observer: reprise.ObserverFunc(func(e reprise.Event) {
			mu.Lock()
			defer mu.Unlock()
			switch e.Kind {
			case reprise.EventDone:
				done[e.Delivery.MessageID]++
				total++
			case reprise.EventRetried:
				retried[e.Delivery.MessageID]++
			case reprise.EventParked, reprise.EventDropped, reprise.EventRequeued, reprise.EventLost:
				t.Errorf("message %s: event %v, error %v", e.Delivery.MessageID, e.Kind, e.Err)
			}
		})})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close(context.Background())
		worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
			Queue: queue, Handler: p, Concurrency: concurrency, Policy: reprise.Policy{MaxAttempts: 1000, Backoff: backoff.Fixed(time.Millisecond)},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Declare(ctx, topology.Buckets{}.Topology(queue)); err != nil {
			t.Fatal(err)
		}
		for i := range messages {
			if err := client.Publish(ctx, &reprise.Message{RoutingKey: queue, MessageID: strconv.Itoa(i), Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return total
		}
		run, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(run) }()
		for i := range kills {
			testkit.Eventually(t, patience, func() bool { return count() >= messages*i/kills && len(p.pids()) > 0 })
			if pids := p.pids(); len(pids) > 0 {
				_ = syscall.Kill(pids[rand.IntN(len(pids))], syscall.SIGKILL)
			}
		}
		testkit.Eventually(t, patience, func() bool { return count() >= messages })
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		checkConserved(t, messages, file, done, retried)
		for _, name := range []string{queue, topology.FailedQueue(queue)} {
			expectEmpty(t, b.URL, name)
		}
	})
}

// checkConserved compares the effects of messages with the accounts of the worker.
func checkConserved(t *testing.T, messages int, file string, done, retried map[string]int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	effects := map[string]int{}
	for id := range strings.FieldsSeq(string(text)) {
		effects[id]++
	}
	failed := 0
	for i := range messages {
		id := strconv.Itoa(i)
		failed += retried[id]
		if done[id] != 1 || effects[id] < 1 || effects[id] > 1+retried[id] {
			t.Errorf("message %s: done %d times, %d effects, %d retries", id, done[id], effects[id], retried[id])
		}
	}
	if failed == 0 {
		t.Error("no message was in flight at a kill, so the test has tested nothing")
	}
	t.Logf("%d attempts failed", failed)
}

// expectEmpty checks that a queue has no messages, and deletes the queue.
func expectEmpty(t *testing.T, url, queue string) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := ch.QueueDelete(queue, false, false, false); err != nil || n != 0 {
		t.Errorf("queue %s: %d messages, error %v", queue, n, err)
	}
}

// The examples in other languages give the results that their comments describe.
func TestProcessExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short (needs interpreters)")
	}
	dir, err := filepath.Abs("../../../../examples/handlers")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ interpreter, script, invalid string }{
		{"python3", "handler.py", "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes"},
		{"node", "handler.js", "SyntaxError: "},
		{"php", "handler.php", "JsonException: Syntax error"},
		{"ruby", "handler.rb", "unexpected token at '{'"},
	} {
		t.Run(tt.script, func(t *testing.T) {
			if _, err := exec.LookPath(tt.interpreter); err != nil {
				t.Skipf("%s not found (install it, or run make test)", tt.interpreter)
			}
			var log testkit.Buffer
			p := newProcess(t, ProcessConfig{Concurrency: 3, ExecConfig: ExecConfig{Command: []string{tt.interpreter, tt.script}, Dir: dir, Logger: textLog(&log)}})
			if err := errors.Join(p.Check(), p.Start(bounded(t))); err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			for _, m := range []struct{ body, kind, text string }{
				{`{"customer":"Ünal"}`, "ack", ""},
				{`{}`, "park", "order without a customer"},
				{`{"customer":"closed"}`, "retry after 10m0s", "the bank is closed"},
				{`{`, "retry", tt.invalid},
				{"\xff", "retry", ""},
				{`{"customer":"Bob","items":["tea","milk"]}`, "ack", ""},
			} {
				err := p.Handle(bounded(t), body(m.body))
				if got := kind(err); got != m.kind || err != nil && !strings.Contains(firstLine(err), m.text) {
					t.Errorf("%s: got %s, error %v; want %s, %q", m.body, got, err, m.kind, m.text)
				}
			}
			if n := len(p.pids()); n != 1 || strings.Contains(log.String(), "not an answer") {
				t.Errorf("got %d processes, log %s", n, log.String())
			}
			p.Close()
			if !strings.Contains(log.String(), "charged Bob") {
				t.Errorf("the log has no output of the handler: %s", log.String())
			}
		})
	}
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}
