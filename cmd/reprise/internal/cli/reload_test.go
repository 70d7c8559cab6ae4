//go:build unix

package cli

import (
	"bufio"
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
	up := exec.Command("reprise", "up", "-c", file)
	log, err := up.StderrPipe()
	must(err)
	must(up.Start())
	var text strings.Builder
	url, exited := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(exited)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			text.WriteString(lines.Text() + "\n")
			if m := regexp.MustCompile(`url=(amqp://\S+)`).FindStringSubmatch(lines.Text()); m != nil {
				url <- m[1]
			}
		}
	}()
	defer func() {
		_ = up.Process.Signal(syscall.SIGTERM)
		<-exited
		if err := up.Wait(); err != nil || t.Failed() {
			t.Errorf("reprise up exited with %v\n%s", err, &text)
		}
	}()
	client, err := reprise.Dial(t.Context(), <-url, nil)
	must(err)
	defer client.Close(t.Context())
	reload := func() {
		t.Helper()
		if out, err := exec.Command("reprise", "reload", "-c", file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
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
