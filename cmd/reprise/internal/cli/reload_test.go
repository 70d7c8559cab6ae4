//go:build unix

package cli

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
)

// Reloads under load lose no message and repeat none, whichever worker they replace, and although some handlers are slower
// than the drain time of their worker.
func TestReloadUnderLoad(t *testing.T) {
	const perQueue, queues = 2500, 4
	var mu sync.Mutex
	handled := map[string]int{}
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		handled[r.Header.Get("Reprise-Queue")+" "+r.Header.Get("Reprise-Message-Id")]++
		n := len(handled)
		mu.Unlock()
		if n%8 == 0 {
			time.Sleep(5 * time.Millisecond) // longer than the drain time of a worker
		}
	}))
	defer service.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "reprise.yaml")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// Each round changes one worker, and adds or removes another one.
	write := func(round int) {
		var text strings.Builder
		text.WriteString("listen: 127.0.0.1:0\ndata: memory\nworkers:\n")
		for q := range queues {
			concurrency := 2
			if q == round%queues {
				concurrency = 1 + round%7
			}
			text.WriteString(fmt.Sprintf("  - {queue: q%d, http: %s, concurrency: %d, drain: 1ms}\n", q, service.URL, concurrency))
		}
		if round%2 == 1 {
			text.WriteString("  - {queue: sometimes, http: " + service.URL + "}\n")
		}
		must(os.WriteFile(file, []byte(text.String()), 0o600))
	}
	write(0)
	client := startUp(t, file)
	reload := func() {
		t.Helper()
		must(reloadFile(file))
	}
	reload() // the queues exist
	published := make(chan error, 1)
	go func() {
		for i := range perQueue {
			for q := range queues {
				if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: fmt.Sprintf("q%d", q), MessageID: fmt.Sprint(i)}); err != nil {
					published <- err
					return
				}
			}
		}
		published <- nil
	}()
	all := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(handled) == perQueue*queues
	}
	done := false
	for round := 1; !done || round < 10; round++ {
		write(round)
		reload()
		select {
		case err := <-published:
			must(err)
			published <- nil
			done = all()
		default:
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for m, n := range handled {
		if n != 1 {
			t.Errorf("message %s was handled %d times", m, n)
		}
	}
}

// startUp runs reprise up with a file until the test ends, and returns a client of its embedded broker.
func startUp(t *testing.T, file string) *reprise.Client {
	t.Helper()
	client, _ := runUp(t, file)
	return client
}

// runUp is like startUp. The function stop ends the process and returns its log.
func runUp(t *testing.T, file string, env ...string) (client *reprise.Client, stop func() string) {
	t.Helper()
	log, stop := process(t, file, env...)
	var at []string
	testkit.Eventually(t, time.Minute, func() bool {
		at = regexp.MustCompile(`url=(amqp://\S+)`).FindStringSubmatch(log())
		return at != nil
	})
	client, err := reprise.Dial(t.Context(), at[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(context.Background()) })
	return client, stop
}

// process runs reprise up with a file until the test ends.
func process(t *testing.T, file string, env ...string) (log, stop func() string) {
	t.Helper()
	up := exec.Command("reprise", "up", "-c", file)
	up.Env = append(os.Environ(), env...)
	output, err := up.StderrPipe()
	if err == nil {
		err = up.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var text strings.Builder
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			mu.Lock()
			text.WriteString(lines.Text() + "\n")
			mu.Unlock()
		}
	}()
	log = func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
	stop = sync.OnceValue(func() string {
		_ = up.Process.Signal(syscall.SIGTERM)
		<-exited
		if err := up.Wait(); err != nil || t.Failed() {
			t.Errorf("reprise up exited with %v\n%s", err, log())
		}
		return log()
	})
	t.Cleanup(func() { stop() })
	return log, stop
}

func reloadFile(file string) error {
	if out, err := exec.Command("reprise", "reload", "-c", file).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// A long attempt delays only the reload of its own queue. The next reload reads the files after the first one has ended, so that it
// cannot apply an earlier content.
func TestReloadDuringLongAttempt(t *testing.T) {
	started, release, reloaded := make(chan struct{}), make(chan struct{}), make(chan struct{})
	replaced := sync.OnceFunc(func() { close(reloaded) })
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow1":
			close(started)
			<-release
		case "/fast2":
			replaced()
		}
	}))
	defer service.Close()
	file := filepath.Join(t.TempDir(), "reprise.yaml")
	write := func(workers string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("listen: 127.0.0.1:0\ndata: memory\nworkers:\n"+workers), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	workers := func(round int) string {
		return fmt.Sprintf("  - {queue: slow, http: %[1]s/slow%[2]d}\n  - {queue: fast, http: %[1]s/fast%[2]d}\n", service.URL, round)
	}
	write(workers(1))
	client := startUp(t, file)
	publish := func(queue string) {
		t.Helper()
		if err := client.Publish(t.Context(), &reprise.Message{RoutingKey: queue}); err != nil {
			t.Fatal(err)
		}
	}
	if err := reloadFile(file); err != nil { // the queues exist
		t.Fatal(err)
	}
	publish("slow")
	<-started
	write(workers(2))
	results := make(chan error, 2)
	go func() { results <- reloadFile(file) }()
	testkit.Eventually(t, time.Minute, func() bool {
		publish("fast")
		select {
		case <-reloaded:
			return true
		default:
			return false
		}
	})
	write("  - invalid")
	go func() { results <- reloadFile(file) }()
	time.AfterFunc(500*time.Millisecond, func() { // a second reload that does not wait has failed by then
		write(workers(3))
		close(release)
	})
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}
