//go:build unix

package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
)

func newExec(t *testing.T, cfg ExecConfig) *Exec {
	t.Helper()
	e, err := NewExec(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// shell returns a handler that runs a script.
func shell(t *testing.T, script string) *Exec {
	t.Helper()
	return newExec(t, ExecConfig{Command: []string{"sh", "-c", script}, Dir: t.TempDir()})
}

func TestExecOutcome(t *testing.T) {
	for _, tt := range []struct{ script, kind, text string }{
		{"exit 0", "ack", ""},
		{"echo trouble >&2; exit 0", "ack", ""},
		{"exit 1", "retry", "sh: exit status 1"},
		{"echo busy >&2; exit 75", "retry", "sh: exit status 75: busy"},
		{"echo broken >&2; exit 65", "park", "sh: exit status 65: broken"},
		{"exit 64", "retry", "sh: exit status 64"},
		{"exit 127", "retry", "sh: exit status 127"},
		{"kill -KILL $$", "retry", "sh: signal: killed"},
		{"kill -SEGV $$", "retry", "sh: signal: segmentation fault"},
		{`printf '\377\0x' >&2; exit 1`, "retry", "sh: exit status 1: \uFFFD\uFFFDx"},
	} {
		t.Run(tt.script, func(t *testing.T) {
			err := shell(t, tt.script).Handle(bounded(t), full())
			if got := kind(err); got != tt.kind {
				t.Errorf("got %s, want %s (%v)", got, tt.kind, err)
			}
			if err != nil && !strings.HasPrefix(err.Error(), tt.text) {
				t.Errorf("got %q, want %q", err, tt.text)
			}
		})
	}
}

// The program receives the body unchanged.
func TestExecBody(t *testing.T) {
	dir := t.TempDir()
	e := newExec(t, ExecConfig{Command: []string{"sh", "-c", "cat > body"}, Dir: dir})
	body := make([]byte, 1<<20)
	for i := range body {
		body[i] = byte(i * i >> 8)
	}
	if err := e.Handle(bounded(t), &reprise.Delivery{Message: reprise.Message{Body: body}}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "body"))
	if err != nil || string(got) != string(body) {
		t.Errorf("got %d bytes, error %v", len(got), err)
	}
}

// A program may ignore its input, even a large input.
func TestExecIgnoresInput(t *testing.T) {
	for _, script := range []string{"exit 0", "exec <&-; exit 0"} {
		if err := shell(t, script).Handle(bounded(t), &reprise.Delivery{Message: reprise.Message{Body: make([]byte, 4<<20)}}); err != nil {
			t.Errorf("script %s: got error %v", script, err)
		}
	}
}

// The error contains the cause, and the beginning and the end of the program's standard error.
func TestExecErrorTextIsLimited(t *testing.T) {
	err := shell(t, `i=0; while [ $i -lt 2000 ]; do echo "line ä $i"; i=$((i+1)); done >&2; exit 1`).Handle(bounded(t), full())
	text := err.Error()
	if len(text) > maxErrorText || !strings.HasSuffix(text, "line ä 1999") || !strings.HasPrefix(text, "sh: exit status 1: line ä 1999\nline ä 0\n") {
		t.Errorf("error text: got %d bytes, want at most %d: %.60q … %q", len(text), maxErrorText, text, text[len(text)-20:])
	}
}

// The cause is in the first line, even if a runtime prints it above thousands of frames. Package cause has the formats.
func TestExecErrorBeginsWithCause(t *testing.T) {
	frames := strings.Repeat("    at f (/app/x.js:1:31)\n", 3000)
	for stderr, want := range map[string]string{
		"card declined\n": "sh: exit status 1: card declined",
		strings.Repeat("INFO step\n", 100_000) + "Error: card declined\n" + frames:                               "sh: exit status 1: Error: card declined\nINFO step\n",
		"Error: card declined\n" + frames + frames + frames + frames:                                             "sh: exit status 1: Error: card declined\nError: card declined\n    at f",
		strings.Repeat("  File \"deep.py\", line 7, in deep\n    deep()\n", 1000) + "RecursionError: too deep\n": "sh: exit status 1: RecursionError: too deep\nFile \"deep.py\"",
		"\x1b[31mprogress 1%\rprogress 99%\r\x1b[1mcard declined\x1b[0m\n":                                       "sh: exit status 1: card declined\nprogress 1%\nprogress 99%\ncard declined",
		"\xff\xfes\x00t\x00a\x00r\x00t\x00\r\x00\n\x00n\x00o\x00\r\x00\n\x00":                                    "sh: exit status 1: no\nstart\nno",
		"\xff\xfe\x00": "sh: exit status 1: \uFFFD",
		"":             "sh: exit status 1",
	} {
		file := filepath.Join(t.TempDir(), "said")
		if err := os.WriteFile(file, []byte(stderr), 0o600); err != nil {
			t.Fatal(err)
		}
		err := shell(t, "cat "+file+" >&2; exit 1").Handle(bounded(t), full())
		if text := err.Error(); !strings.HasPrefix(text, want) || !utf8.ValidString(text) || len(text) > maxErrorText {
			t.Errorf("error text: got %d bytes: %.300q, want prefix %q", len(text), text, want)
		}
	}
}

func TestExecLog(t *testing.T) {
	var log testkit.Buffer
	e := newExec(t, ExecConfig{Command: []string{"sh", "-c", `
		echo "  to stdout "; echo "to stderr" >&2
		printf 'half'; printf '%020000d\nend' 7; printf '\n\n'`}, Logger: textLog(&log)})
	if err := e.Handle(bounded(t), full()); err != nil {
		t.Fatal(err)
	}
	got := log.String()
	for _, want := range []string{
		`msg="handler output" queue=orders message_id=m-1 attempt=3 stream=stdout text="  to stdout"`,
		`msg="handler output" queue=orders message_id=m-1 attempt=3 stream=stderr text="to stderr"`,
		"text=\"half" + strings.Repeat("0", maxLine-4) + " …\"",
		"text=end\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%.80q not found in the log", want)
		}
	}
	if n := strings.Count(got, "\n"); n != 4 {
		t.Errorf("got %d log lines, want 4:\n%.2000s", n, got)
	}
}

// A line of a structured log keeps its level, its message and its fields.
func TestExecStructuredLog(t *testing.T) {
	for line, want := range map[string]string{
		`{"level":"error","msg":"declined","order":7}`:                           `ERROR declined`,
		`{"severity":"WARNING","message":"slow","order":7}`:                      `WARN slow`,
		`{"levelname": "DEBUG", "message": "step", "levelno": 10}`:               `DEBUG step`,
		`{"Level":"Information","@mt":"done","Properties":{"Order":7}}`:          `INFO done`,
		`{"@l":"Fatal","@m":"down"}`:                                             `ERROR down`,
		`{"level":30,"time":1,"pid":1,"hostname":"h","msg":"done"}`:              `INFO done`,
		`{"level":60,"msg":"down"}`:                                              `ERROR down`,
		`{"level":20,"msg":"step"}`:                                              `DEBUG step`,
		`{"level":4,"short_message":"slow"}`:                                     `WARN slow`,
		`{"level":7,"short_message":"step"}`:                                     `DEBUG step`,
		`{"log":{"level":"critical"},"message":"down"}`:                          `ERROR down`,
		`{"log.level":"warn","message":"slow"}`:                                  `WARN slow`,
		`{"event":"login","level":"info","id":12345678901234567890}`:             `INFO login`,
		`  {"lvl":"eror","msg":"typo"}  `:                                        `INFO typo`,
		`{"order":7}`:                                                            `INFO `,
		`{"level":"error","msg":"` + strings.Repeat("long ", 2000) + `"}`:        `ERROR ` + strings.Repeat("long ", 2000),
		`{"level":"error","msg":"not closed"`:                                    "",
		`{"level":"error","msg":"two"} {}`:                                       "",
		`["level","error"]`:                                                      "",
		`{"level":"error","msg":"` + strings.Repeat("too long ", maxLine) + `"}`: "",
	} {
		file := filepath.Join(t.TempDir(), "line")
		if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var log testkit.Buffer
		e := newExec(t, ExecConfig{
			Command: []string{"cat", file},
			Logger:  slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		if err := e.Handle(bounded(t), full()); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Level, Msg, Stream, Text string
			JSON                     json.RawMessage
		}
		if err := json.Unmarshal([]byte(log.String()), &got); err != nil {
			t.Fatalf("%v in %.300q", err, log.String())
		}
		if got.Msg != "handler output" || got.Stream != "stdout" {
			t.Errorf("got %.300s", log.String())
		}
		if want == "" {
			if got.Level != "INFO" || got.JSON != nil || !strings.HasPrefix(line, strings.TrimSuffix(got.Text, " …")) {
				t.Errorf("%.80s: got %.300s, want plain text", line, log.String())
			}
		} else if got.Level+" "+got.Text != want || string(got.JSON) != compact(t, line) {
			t.Errorf("%.80s: got %.300s, want %.80s", line, log.String(), want)
		}
	}
}

func compact(t *testing.T, line string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(line)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestExecMissing(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	write("plain", "#!/bin/sh\n", 0o644)
	write("works", "#!/bin/sh\nexit 0\n", 0o755)
	write("lost", "#!/no/such/interpreter\n", 0o755)
	write("envlost", "#!/usr/bin/env no-such-python\n", 0o755)
	write("envworks", "#!/usr/bin/env -S FORCE=1 sh -e\nexit 0\n", 0o755)
	write("text", "exit 0\n", 0o755)
	write("empty", "", 0o755)
	write("windows", "#!/bin/sh\r\nexit 0\r\n", 0o755)
	write("envwindows", "#!/usr/bin/env sh\r\nexit 0\r\n", 0o755)
	write("nothingafter", "#!\nexit 0\n", 0o755)
	write("relative", "#!./works\n", 0o755)
	for _, tt := range []struct{ command, dir, check, handle string }{
		{"no-such-program", dir, "program no-such-program not found in the PATH", "program no-such-program not found in the PATH"},
		{"works", dir, "program works not found in the PATH (for the file in the directory of the handler, use ./works)", "use ./works"},
		{"~/works", dir, "~ is not expanded", "~ is not expanded"},
		{"$HOME/works", dir, "variables are not expanded", "variables are not expanded"},
		{"./works --fast 17", dir, "list the arguments separately: [./works, --fast, 17]", "list the arguments separately"},
		{"./works ", dir, "list the arguments separately: [./works]", "list the arguments separately"},
		{".", dir, "not found in the PATH", "not found in the PATH"},
		{"./sub", dir, "program " + dir + "/sub is a directory", "is a directory"},
		{"./nothing", dir, "program " + dir + "/nothing not found", "not found"},
		{"./plain", dir, "chmod +x", "chmod +x"},
		{"./lost", dir, "interpreter /no/such/interpreter not found", "interpreter /no/such/interpreter not found"},
		{"./envlost", dir, "interpreter no-such-python not found in the PATH", "exit status 127"},
		{"./envworks", dir, "", ""},
		{"./text", dir, "it is a text without an interpreter (add a first line such as #!/bin/sh)", "it is a text without an interpreter"},
		{"./empty", dir, "it is a text without an interpreter", "it is a text without an interpreter"},
		{"./windows", dir, "line break of Windows", "line break of Windows"},
		{"./envwindows", dir, "line break of Windows", "exit status 127"},
		{"./nothingafter", dir, "its first line has no interpreter", "cannot start"},
		{"./relative", dir, "", ""},
		{"/bin/true", dir, "", ""},
		{"./works", dir, "", ""},
		{filepath.Join(dir, "works"), dir, "", ""},
		{"true", filepath.Join(dir, "gone"), "of the handler: no such file", "of the handler: no such file"},
		{"true", filepath.Join(dir, "plain"), "is a file", "is a file"},
	} {
		t.Run(tt.command, func(t *testing.T) {
			e := newExec(t, ExecConfig{Command: []string{tt.command}, Dir: tt.dir})
			expect(t, e.Check(), tt.check)
			err := e.Handle(bounded(t), full())
			expect(t, err, tt.handle)
			if err != nil && kind(err) != "retry" {
				t.Errorf("a program that cannot be started: %s", kind(err))
			}
		})
	}
}

// A program that is being replaced, or that the file system does not execute, names the cause, and the message is retried.
func TestExecNamesCauseOfUnavailableProgram(t *testing.T) {
	program := filepath.Join(t.TempDir(), "charge")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	e := newExec(t, ExecConfig{Command: []string{program}})
	open, err := os.OpenFile(program, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	busy := e.Handle(bounded(t), full())
	expect(t, busy, "cannot start "+program+": another process has the file open for writing (write to a new file, and rename it)")
	if err := open.Close(); err != nil || kind(busy) != "retry" {
		t.Errorf("got error %v, kind %s, want a retry", err, kind(busy))
	}
	// A test cannot mount a file system without privileges, so it passes the error of such a start.
	expect(t, e.missing(&os.PathError{Op: "fork/exec", Path: program, Err: syscall.EACCES}), program+" cannot be executed although it has the permission (its file system may be mounted with noexec")
	expect(t, e.Handle(bounded(t), full()), "")
}

// The check finds a script that an interpreter would miss when the first message arrives.
func TestExecChecksScriptOfInterpreter(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"python3", "node", "true", "handler.py"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		command []string
		want    string
	}{
		{[]string{"./python3", "handler.py"}, ""},
		{[]string{"./python3", filepath.Join(dir, "handler.py"), "gone.py"}, ""},
		{[]string{"./python3", "gone.py"}, "script " + dir + "/gone.py of ./python3 not found"},
		{[]string{"./python3", "-u", "gone.py"}, ""},
		{[]string{"./python3", "-m", "charge.handler"}, ""},
		{[]string{"./node", "src/charge.js"}, "script " + dir + "/src/charge.js of ./node not found"},
		{[]string{"./node", "charge"}, ""},
		{[]string{"./true", "gone.py"}, ""},
		{[]string{"./python3"}, ""},
	} {
		expect(t, newExec(t, ExecConfig{Command: tt.command, Dir: dir}).Check(), tt.want)
	}
}

func TestNewExecRefusesInvalidConfig(t *testing.T) {
	for _, cfg := range []ExecConfig{{}, {Command: []string{""}}, {Command: []string{"x"}, Timeout: -1}, {Command: []string{"x"}, Grace: -1}} {
		if _, err := NewExec(cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

// waitFor waits until a program has written a line to the file, and returns this line.
func waitFor(t *testing.T, file string) (line string) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		b, err := os.ReadFile(file)
		if err == nil && !strings.HasSuffix(string(b), "\n") {
			err = fmt.Errorf("file %s has no line: %q", file, b)
		}
		line = strings.TrimSpace(string(b))
		return err
	})
	return line
}

// patience is the maximum time of a wait for another process.
const patience = time.Minute

// waitForExit waits until a process has exited. A zombie counts as exited.
func waitForExit(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func() error {
		if errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
			return nil
		}
		if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil && strings.Contains(string(stat), ") Z ") {
			return nil
		}
		return fmt.Errorf("process %s is still running", pid)
	})
}

// After a cancellation, the program and its children first receive SIGTERM.
func TestExecTerminatesProgramOnCancel(t *testing.T) {
	dir := t.TempDir()
	e := newExec(t, ExecConfig{Dir: dir, Command: []string{"sh", "-c", `
		sleep 1000 & echo $! > child
		trap 'echo > asked; exit 75' TERM
		echo > ready
		wait`}})
	ctx, cancel := context.WithCancelCause(bounded(t))
	result := make(chan error, 1)
	go func() { result <- e.Handle(ctx, full()) }()
	waitFor(t, filepath.Join(dir, "ready"))
	cancel(errors.New("the test ends it"))
	err := <-result
	if kind(err) != "retry" || !strings.Contains(err.Error(), "the test ends it") {
		t.Errorf("got %s, want retry: %v", kind(err), err)
	}
	waitFor(t, filepath.Join(dir, "asked"))
	waitForExit(t, waitFor(t, filepath.Join(dir, "child")))
}

// If a program and its child ignore SIGTERM, both are killed after the grace period.
func TestExecKillsAfterGrace(t *testing.T) {
	dir := t.TempDir()
	e := newExec(t, ExecConfig{Dir: dir, Grace: 50 * time.Millisecond, Command: []string{"sh", "-c", `
		trap '' TERM
		sh -c 'trap "" TERM; echo $$ > child; while :; do sleep 1; done' &
		echo $$ > parent
		while :; do sleep 1; done`}})
	ctx, cancel := context.WithCancel(bounded(t))
	result := make(chan error, 1)
	go func() { result <- e.Handle(ctx, full()) }()
	child, parent := waitFor(t, filepath.Join(dir, "child")), waitFor(t, filepath.Join(dir, "parent"))
	cancel()
	if err := <-result; kind(err) != "retry" {
		t.Errorf("got error %v", err)
	}
	waitForExit(t, parent)
	waitForExit(t, child)
}

// If a program handles SIGTERM, its exit code determines the outcome.
func TestExecOutcomeAfterSIGTERM(t *testing.T) {
	for code, want := range map[string]string{"0": "ack", "65": "park", "1": "retry"} {
		dir := t.TempDir()
		e := newExec(t, ExecConfig{Dir: dir, Command: []string{"sh", "-c", `
			trap 'exit ` + code + `' TERM; echo > ready; while :; do sleep 0.01; done`}})
		ctx, cancel := context.WithCancel(bounded(t))
		result := make(chan error, 1)
		go func() { result <- e.Handle(ctx, full()) }()
		waitFor(t, filepath.Join(dir, "ready"))
		cancel()
		if err := <-result; kind(err) != want {
			t.Errorf("exit %s: %s, want %s (%v)", code, kind(err), want, err)
		}
	}
}

func TestExecTimeout(t *testing.T) {
	e := newExec(t, ExecConfig{Command: []string{"sleep", "1000"}, Timeout: 20 * time.Millisecond})
	if err := e.Handle(bounded(t), full()); kind(err) != "retry" || !strings.Contains(err.Error(), "sleep was stopped: timeout after 20ms") {
		t.Errorf("got %s, want retry: %v", kind(err), err)
	}
}

func TestExecAfterContextEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := shell(t, "exit 0").Handle(ctx, full()); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
}

// The exit code of the program determines the outcome, even if a child keeps the output open.
func TestExecAllowsChildAfterSuccess(t *testing.T) {
	dir := t.TempDir()
	var log testkit.Buffer
	e := newExec(t, ExecConfig{
		Dir: dir, Grace: 20 * time.Millisecond, Logger: textLog(&log),
		Command: []string{"sh", "-c", "sleep 1000 & echo $! > child; exit 0"},
	})
	if err := e.Handle(bounded(t), full()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "children kept its output open") {
		t.Errorf("log: got %s, want \"children kept its output open\"", log.String())
	}
	pid, err := strconv.Atoi(waitFor(t, filepath.Join(dir, "child")))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("child was killed: %v", err)
	}
}

func TestExecKill(t *testing.T) {
	dir := t.TempDir()
	e := newExec(t, ExecConfig{Dir: dir, Command: []string{"sh", "-c", "trap '' TERM; sleep 1000 & echo $! > child; wait"}})
	ctx, cancel := context.WithCancelCause(bounded(t))
	result := make(chan error, 2)
	go func() { result <- e.Handle(ctx, full()) }()
	child := waitFor(t, filepath.Join(dir, "child"))
	e.Kill()
	waitForExit(t, child)
	go func() { result <- e.Handle(ctx, full()) }()
	ended := errors.New("the worker requeues its messages")
	cancel(ended)
	for range 2 { // the killed program, and the program that was not started; neither counts as failed
		if err := <-result; !errors.Is(err, ended) {
			t.Errorf("got error %v", err)
		}
	}
}
