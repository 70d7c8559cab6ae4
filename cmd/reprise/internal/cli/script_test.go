//go:build unix

package cli

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/reprisemq/reprise/cmd/reprise/internal/terminal"
	"github.com/reprisemq/reprise/internal/testkit"
)

func TestMain(m *testing.M) {
	if signal.Ignored(syscall.SIGHUP) { // nohup ignores SIGHUP; child processes inherit an ignored signal, but not a handler
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	testscript.Main(testkit.Waiting{M: m}, programs)
}

// programs contains the programs that scripts can run as separate processes.
var programs = map[string]func(){
	"reprise": func() { os.Exit(Main(os.Args[1:], terminal.Process())) },
	"sqlite":  sqlite,
}

// sqlite runs a statement in the database of the first argument, and prints the first column of its rows.
func sqlite() {
	err := func() error {
		db, err := sql.Open("sqlite", "file:"+os.Args[1]+"?_pragma=busy_timeout(30000)")
		if err != nil {
			return err
		}
		defer db.Close()
		rows, err := db.Query(os.Args[2])
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				return err
			}
			fmt.Println(text)
		}
		return rows.Err()
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestScript runs the scripts in testdata/script. In addition to the commands of testscript, scripts have
//
//	exits CODE PROGRAM ARGUMENT...   run a program that exits with this code
//	await FILE REGEXP                wait until a file contains this text
//	url FILE                         set REPRISE_URL to the first URL of a broker in a file
//	fetch FILE PATH USER PASSWORD    get a path from the first http URL in a file; fails if the status is an error
//	answers FILE PATH REGEXP         wait until that path returns this text, with any status
//	console FILE                     set REPRISE_SERVER to the first http URL in a file
//	until REGEXP PROGRAM ARGUMENT... run a program repeatedly until its stdout contains this text
//	sqlite FILE STATEMENT            run a statement, and print the first column of its rows
//	sqlite-close FILE                on Unix: close a database like a program with an older SQLite
//
//	received REGEXP                  wait for a body with this text at $HOOKS/hush, the only path of $HOOKS that accepts one
//
// and $SERVICE, the URL of a service that refuses each message once, with a Retry-After if the path begins with /later.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			s := httptest.NewServer(refuseOnce())
			e.Defer(s.Close)
			e.Setenv("SERVICE", s.URL)
			received := &requests{}
			hooks := httptest.NewServer(received)
			e.Defer(hooks.Close)
			e.Setenv("HOOKS", hooks.URL)
			e.Values[requestsKey{}] = received
			e.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise each command takes one second longer
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits,
			"await": await,
			"url":   brokerOf,
			"fetch": fetch,

			"answers": answers,
			"console": consoleOf,
			"until":   runUntil,

			"received": isReceived,
		},
	})
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if neg || err != nil || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGUMENT...")
	}
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// timeout is the maximum duration of a script or of a wait.
const timeout = 2 * time.Minute

// eventually reports whether a condition holds before the timeout.
func eventually(condition func() bool) bool {
	const pause = 2 * time.Millisecond
	for deadline := time.Now().Add(timeout); !condition(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	var text []byte
	found := eventually(func() bool {
		text, err = os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && re.Match(text)
	})
	if !found {
		ts.Fatalf("%s has no %q:\n%s", args[0], args[1], text)
	}
}

func brokerOf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: url FILE")
	}
	await(ts, false, []string{args[0], `amqp://\S+:[0-9]+\b`})
	ts.Setenv("REPRISE_URL", regexp.MustCompile(`amqp://\S+:[0-9]+\b`).FindString(ts.ReadFile(args[0])))
}

func fetch(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 4 && len(args) != 5 {
		ts.Fatalf("usage: fetch FILE PATH USER PASSWORD [BODY]")
	}
	base := regexp.MustCompile(`http://[^/\s]+`).FindString(ts.ReadFile(args[0]))
	method, body := http.MethodGet, io.Reader(nil)
	if len(args) == 5 {
		method, body = http.MethodPost, strings.NewReader(args[4])
	}
	r, err := http.NewRequest(method, base+args[1], body)
	ts.Check(err)
	r.SetBasicAuth(args[2], args[3])
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	ts.Check(err)
	defer answer.Body.Close()
	_, err = io.Copy(ts.Stdout(), answer.Body)
	ts.Check(err)
	if failed := answer.StatusCode >= 400; failed != neg {
		ts.Fatalf("status %s", answer.Status)
	}
}

func answers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: answers FILE PATH REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[2])
	ts.Check(err)
	await(ts, false, []string{args[0], `http://\S+:[0-9]+`})
	url := regexp.MustCompile(`http://[^/\s]+`).FindString(ts.ReadFile(args[0])) + args[1]
	var text []byte
	found := eventually(func() bool {
		answer, err := http.Get(url)
		ts.Check(err)
		text, err = io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		return err == nil && re.Match(text)
	})
	if !found {
		ts.Fatalf("%s does not answer %q:\n%s", url, args[2], text)
	}
}

func consoleOf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: console FILE")
	}
	await(ts, false, []string{args[0], `http://\S+:[0-9]+`})
	ts.Setenv("REPRISE_SERVER", regexp.MustCompile(`http://[^/\s]+`).FindString(ts.ReadFile(args[0])))
}

// requests records the bodies of requests.
type requests struct {
	mu     sync.Mutex
	bodies []string
}

type requestsKey struct{}

func (x *requests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if r.URL.Path != "/hush" || err != nil {
		http.Error(w, "path not found", http.StatusNotFound)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bodies = append(x.bodies, string(body))
}

func isReceived(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: received REGEXP")
	}
	re, err := regexp.Compile(args[0])
	ts.Check(err)
	x := ts.Value(requestsKey{}).(*requests)
	found := eventually(func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return slices.ContainsFunc(x.bodies, re.MatchString)
	})
	if !found {
		ts.Fatalf("%q was not received: %q", args[0], x.bodies)
	}
}

func runUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP PROGRAM ARGUMENT...")
	}
	re, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	found := eventually(func() bool {
		err = ts.Exec(args[1], args[2:]...)
		return err == nil && re.MatchString(ts.ReadFile("stdout"))
	})
	if !found {
		ts.Fatalf("%q never printed %q: %v\n%s%s", args[1:], args[0], err, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// refuseOnce responds to the first attempt of each message with 503.
func refuseOnce() http.HandlerFunc {
	var mu sync.Mutex
	seen := map[string]bool{}
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		id := r.Header.Get("Reprise-Message-Id")
		if !seen[id] {
			if strings.HasPrefix(r.URL.Path, "/later") {
				w.Header().Set("Retry-After", "1")
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, "not in the mood")
		}
		seen[id] = true
	}
}

func TestDocumentationListsExitCodes(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"| 0 |", "| 1 |", "| 2 |", "| 3 |"} {
		if !strings.Contains(string(doc), line) {
			t.Errorf("docs/cli.md does not describe exit code %s", line)
		}
	}
}
