package handler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/testkit"
)

func newProcess(t *testing.T, cfg ProcessConfig) *Process {
	t.Helper()
	if cfg.Command == nil {
		cfg.Command = []string{"handler"}
	}
	p, err := NewProcess(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// inVirtualTime runs a test with a Process whose programs are functions.
func inVirtualTime(t *testing.T, f *fake, cfg ProcessConfig, test func(*testing.T, *Process)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, cfg)
		p.start = f.start
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		test(t, p)
		p.Close()
	})
}

func body(text string) *reprise.Delivery {
	return &reprise.Delivery{Message: reprise.Message{Body: []byte(text)}}
}

// begin handles a message in the background, until the process has it.
func begin(t *testing.T, p *Process, text string) <-chan error {
	t.Helper()
	result := make(chan error, 1)
	go func() { result <- p.Handle(t.Context(), body(text)) }()
	synctest.Wait()
	return result
}

// Reports of progress answer nothing. They do not extend the timeout, and are harmless for an answered or unknown message.
func TestProcessReports(t *testing.T) {
	f := &fake{}
	inVirtualTime(t, f, ProcessConfig{}, func(t *testing.T, p *Process) {
		report := `{"id":ID,"progress":0.4,"text":"page 4"}` + "\n" + `{"id":ID,"alive":true}` + "\n"
		if err := p.Handle(t.Context(), body("raw "+report+`{"id":ID,"result":"done"}`+"\n"+report+`{"id":99,"progress":1}`+"\n")); err != nil {
			t.Errorf("got %v, want nil", err)
		}
		if err := p.Handle(t.Context(), body(`raw {"id":ID,"progres":0.4}`+"\n")); err == nil || !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("misspelled key: got %v, want an error", err)
		}
		began := time.Now()
		if err := p.Handle(t.Context(), body("raw "+report)); kind(err) != "retry" || time.Since(began) != DefaultTimeout {
			t.Errorf("no answer: got %v after %s, want a retry after %s", err, time.Since(began), DefaultTimeout)
		}
		if starts, _ := f.count(); starts != 1 {
			t.Errorf("got %d starts, want 1: reports do not stop the process", starts)
		}
	})
}

func TestProcessOutcome(t *testing.T) {
	for _, pause := range []bool{false, true} {
		later := map[bool]string{false: "retry after 5s", true: "pause for 5s"}[pause]
		inVirtualTime(t, &fake{}, ProcessConfig{Pause: pause}, func(t *testing.T, p *Process) {
			for _, tt := range []struct{ body, kind, text string }{
				{"done", "ack", ""},
				{"park no such customer", "park", "no such customer"},
				{"retry busy", "retry", "busy"},
				{"retry ", "retry", "the handler answered retry without an error"},
				{"later 5", later, "later"},
				{"later 0", "retry", "later"},
				{"later -5", "retry", "later"},
				{"later 1e300", strings.Replace(later, "5s", "24h0m0s", 1), "later"},
				{"exit 0 bye", "retry", "handler: exit status 0: bye"},
				{"retry Traceback (most recent call last):\n  File \"h.py\", line 7, in f\nValueError: no customer\n", "retry", "ValueError: no customer\nTraceback"},
				{`raw {"id":ID,"result":"ok"}` + "\n", "retry", `invalid answer: result must be done without an error, retry or park: got "ok"`},
				{`raw {"id":ID}` + "\n", "retry", `invalid answer: result must be done without an error, retry or park: got ""`},
				{`raw {"id":ID,"result":"done","error":"odd"}` + "\n", "retry", `invalid answer: result must be done without an error, retry or park: got "done": odd`},
				{`raw {"id":ID,"result":"retry","delay":5}` + "\n", "retry", `invalid answer: unknown field "delay"`},
			} {
				err := p.Handle(t.Context(), body(tt.body))
				if got := kind(err); got != tt.kind || err != nil && !strings.HasPrefix(err.Error(), tt.text) {
					t.Errorf("%s: got %s, error %v; want %s, %q", tt.body, got, err, tt.kind, tt.text)
				}
			}
		})
	}
}

// Messages are in flight together, and are answered in any order.
func TestProcessAnswersInAnyOrder(t *testing.T) {
	f := &fake{}
	inVirtualTime(t, f, ProcessConfig{Concurrency: 3}, func(t *testing.T, p *Process) {
		first, second := begin(t, p, "hold"), begin(t, p, "hold")
		select {
		case err := <-first:
			t.Fatalf("a message without an answer: got %v", err)
		case err := <-second:
			t.Fatalf("a message without an answer: got %v", err)
		default:
		}
		for _, err := range []error{p.Handle(t.Context(), body("release")), <-second, <-first} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	if starts, ends := f.count(); starts != 1 || ends != "exit" {
		t.Errorf("got %d starts, ends %s; want one process that exits at the end of its stdin", starts, ends)
	}
}

// A crash fails the messages of this process only, and with its cause.
func TestProcessCrashFailsItsMessagesOnly(t *testing.T) {
	inVirtualTime(t, &fake{}, ProcessConfig{Processes: 2, Concurrency: 6}, func(t *testing.T, p *Process) {
		var held []<-chan error
		for range 4 {
			held = append(held, begin(t, p, "hold"))
		}
		err := p.Handle(t.Context(), body("exit 70 no database"))
		if e, ok := errors.AsType[*ExitError](err); !ok || e.Code != 70 || kind(err) != "retry" || err.Error() != "handler: exit status 70: no database" {
			t.Errorf("the message that crashed the process: got %v", err)
		}
		synctest.Wait()
		failed := 0
		for _, h := range held {
			select {
			case err := <-h:
				failed++
				if err == nil || err.Error() != "handler: exit status 70: no database" {
					t.Errorf("a message in flight: got %v", err)
				}
			default:
			}
		}
		if failed != 2 {
			t.Errorf("%d of 4 held messages failed, want the 2 of the process", failed)
		}
		if err := p.Handle(t.Context(), body("release")); err != nil { // both processes have one place again
			t.Error(err)
		}
	})
}

// While processes exit without an answer, the delays between starts grow, and messages wait without failing.
func TestProcessRestartsWithBackoff(t *testing.T) {
	f := &fake{}
	broken := atomic.Bool{}
	f.run = func(in io.Reader, out, errs io.Writer, stopped <-chan struct{}) int {
		if broken.Load() {
			fmt.Fprintln(errs, "no database")
			return 1
		}
		return obey(in, out, errs, stopped)
	}
	inVirtualTime(t, f, ProcessConfig{}, func(t *testing.T, p *Process) {
		broken.Store(true)
		if err := p.Handle(t.Context(), body("exit 1 no database")); err == nil {
			t.Fatal("no error")
		}
		waits := begin(t, p, "done")
		time.Sleep(10 * time.Minute)
		expect(t, p.Healthy(), "no handler process is ready: handler process was not ready: handler: exit status 1: no database")
		starts, _ := f.count()
		if starts < 24 || starts > 60 { // each delay is between 15 s and 30 s at the end
			t.Errorf("got %d starts within 10 min", starts)
		}
		f.mu.Lock()
		times := f.starts
		f.mu.Unlock()
		for i := 2; i < len(times); i++ {
			if d := times[i].Sub(times[i-1]); d < 100*time.Millisecond || d > 30*time.Second {
				t.Errorf("start %d: after %s", i, d)
			}
		}
		select {
		case err := <-waits:
			t.Fatalf("a message failed while no process was ready: %v", err)
		default:
		}
		broken.Store(false)
		if err := <-waits; err != nil {
			t.Errorf("the message that waited: %v", err)
		}
		expect(t, p.Healthy(), "")
	})
}

// After an answer, a crash has the shortest delay again.
func TestProcessRestartsSoonAfterProgress(t *testing.T) {
	f := &fake{}
	inVirtualTime(t, f, ProcessConfig{}, func(t *testing.T, p *Process) {
		for range 20 {
			if err := p.Handle(t.Context(), body("done")); err != nil {
				t.Fatal(err)
			}
			_ = p.Handle(t.Context(), body("exit 1 crash"))
		}
		if d := f.starts[len(f.starts)-1].Sub(f.starts[0]); d > 20*200*time.Millisecond {
			t.Errorf("20 restarts took %s", d)
		}
	})
}

// The process of a message without an answer is stopped. The other messages that it has fail, too.
func TestProcessTimeout(t *testing.T) {
	f := &fake{}
	inVirtualTime(t, f, ProcessConfig{ExecConfig: ExecConfig{Timeout: 10 * time.Second}, Concurrency: 2}, func(t *testing.T, p *Process) {
		first := begin(t, p, "hold")
		time.Sleep(4 * time.Second)
		second := begin(t, p, "hold")
		start := time.Now()
		expect(t, <-first, "handler was stopped: timeout after 10s")
		expect(t, <-second, "handler was stopped: one of its messages had a timeout after 10s")
		if d := time.Since(start); d != 6*time.Second {
			t.Errorf("the timeout came after %s, want 6s", d)
		}
		if err := p.Handle(t.Context(), body("done")); err != nil {
			t.Error(err)
		}
	})
	if _, ends := f.count(); ends != "SIGTERM exit" {
		t.Errorf("got ends %s", ends)
	}
}

// When the context of an attempt is done, the process is stopped before Handle returns.
func TestProcessStopsWithContext(t *testing.T) {
	inVirtualTime(t, &fake{stays: true}, ProcessConfig{}, func(t *testing.T, p *Process) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("the drain has ended")) })
		start := time.Now()
		expect(t, p.Handle(ctx, body("hold")), "handler was stopped: the drain has ended")
		if d := time.Since(start); d != time.Second+DefaultGrace {
			t.Errorf("Handle returned after %s, want after the SIGKILL", d)
		}
		expect(t, p.Handle(ctx, body("done")), "the drain has ended")
	})
}

// A process that does not read blocks only its own messages.
func TestProcessThatDoesNotRead(t *testing.T) {
	inVirtualTime(t, &fake{}, ProcessConfig{Processes: 2, Concurrency: 4, ExecConfig: ExecConfig{Timeout: time.Hour}}, func(t *testing.T, p *Process) {
		deaf := begin(t, p, "deaf")
		held := begin(t, p, "hold") // in the other process
		stuck := begin(t, p, "done "+strings.Repeat("x", 1<<20))
		for range 100 {
			if err := p.Handle(t.Context(), body("done")); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Handle(t.Context(), body("release")); err != nil {
			t.Error(err)
		}
		if err := <-held; err != nil {
			t.Error(err)
		}
		expect(t, <-deaf, "timeout after 1h0m0s")
		expect(t, <-stuck, "timeout after 1h0m0s")
	})
}

// A process is replaced after its last message, which it still answers.
func TestProcessMaxMessages(t *testing.T) {
	f := &fake{}
	inVirtualTime(t, f, ProcessConfig{MaxMessages: 10, Concurrency: 2}, func(t *testing.T, p *Process) {
		start := time.Now()
		for range 50 {
			held := begin(t, p, "hold")
			for _, err := range []error{p.Handle(t.Context(), body("release")), <-held} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("replacements took %s, want no delay", d)
		}
		synctest.Wait()
	})
	if starts, ends := f.count(); starts != 11 || ends != "exit exit exit exit exit exit exit exit exit exit exit" {
		t.Errorf("got %d starts, ends %s", starts, ends)
	}
}

func TestProcessMaxMemory(t *testing.T) {
	f := &fake{}
	f.memory.Store(100 << 20)
	inVirtualTime(t, f, ProcessConfig{MaxMemory: 100 << 20, Concurrency: 2, ExecConfig: ExecConfig{Timeout: time.Hour}}, func(t *testing.T, p *Process) {
		held := begin(t, p, "hold")
		time.Sleep(time.Minute + time.Second/2) // between two checks
		f.memory.Store(100<<20 + 1)
		time.Sleep(time.Second)
		f.memory.Store(0)
		if err := p.Handle(t.Context(), body("done")); err != nil { // in the new process
			t.Error(err)
		}
		if starts, ends := f.count(); starts != 2 || ends != "" {
			t.Errorf("got %d starts, ends %s; want a second process, and the first until it has answered", starts, ends)
		}
		expect(t, <-held, "timeout")
	})
}

// An unreadable answer acknowledges no message, and the error names the correction.
func TestProcessUnreadableAnswers(t *testing.T) {
	for raw, want := range map[string]string{
		`{"result":"done"}` + "\n":                                     "handler was stopped: cannot read an answer: the id is missing: {\"result\":\"done\"} (write one line such as",
		`{"id":17,"result":"done"}` + "\n":                             "handler was stopped: it has answered the unknown id 17 (answer with the id of the message)",
		`{"id":0,"result":"done"}` + "\n":                              "unknown id 0",
		`{"id":-1,"result":"done"}` + "\n":                             "cannot read an answer",
		`{"id":"ID","result":"done"}` + "\n":                           "cannot unmarshal string into id",
		`{'id': ID, 'result': 'done'}` + "\n":                          "cannot read an answer: invalid character",
		`loading… {"id":ID,"result":"done"}` + "\n":                    "cannot read an answer: invalid character",
		`{"id":ID,"result":"done"}{"id":ID,"result":"done"}` + "\n":    "cannot read an answer: more text follows the object",
		`[{"id":ID,"result":"done"}]` + "\n":                           "cannot read an answer",
		`{"id":ID,"result":"done"`:                                     "timeout after 30s",
		`{"id":ID,"result":"done"}`:                                    "timeout after 30s",
		"a log line\n":                                                 "timeout after 30s",
		`{"level":"info","msg":"a log line","id":"x"}` + "\n":          "timeout after 30s",
		`{"ready":true}` + "\n":                                        "timeout after 30s",
		strings.Repeat("x", maxAnswer+1):                               "handler was stopped: it has written a line of more than 1 MiB to stdout (write other output to stderr)",
		strings.Repeat("x", 3*maxAnswer) + `{"id":ID,"result":"done"}`: "more than 1 MiB",
	} {
		inVirtualTime(t, &fake{}, ProcessConfig{Concurrency: 2}, func(t *testing.T, p *Process) {
			held := begin(t, p, "hold")
			err := p.Handle(t.Context(), body("raw "+raw))
			if kind(err) != "retry" || !strings.Contains(err.Error(), want) {
				t.Errorf("%.100q: got %v, want %q", raw, err, want)
			}
			if err := <-held; kind(err) != "retry" {
				t.Errorf("%.100q: the other message: got %v", raw, err)
			}
			if err := p.Handle(t.Context(), body("done")); err != nil {
				t.Errorf("%.100q: the next process: %v", raw, err)
			}
		})
	}
}

// Output that is not an answer is logged, and does not disturb the answers around it.
func TestProcessNoise(t *testing.T) {
	var log testkit.Buffer
	f := &fake{}
	inVirtualTime(t, f, ProcessConfig{ExecConfig: ExecConfig{Logger: textLog(&log)}}, func(t *testing.T, p *Process) {
		for _, noise := range []string{"connected\n", "\n", `{"level":"error","msg":"slow"}` + "\n", "the result: 5\n", "\r\n", "null\n", `{"id":null}` + "\n"} {
			if err := p.Handle(t.Context(), body("raw "+noise+`{"id":ID,"result":"done"}`+"\r\n")); err != nil {
				t.Errorf("%q: %v", noise, err)
			}
		}
		// The first answer counts.
		if err := p.Handle(t.Context(), body(`raw {"id":ID,"result":"park","error":"first"}`+"\n"+`{"id":ID,"result":"done"}`+"\n")); kind(err) != "park" {
			t.Errorf("two answers: got %v", err)
		}
		if err := p.Handle(t.Context(), body("done")); err != nil {
			t.Error(err)
		}
	})
	for _, want := range []string{
		`level=INFO msg="handler output" stream=stdout text=connected`, `level=ERROR msg="handler output" stream=stdout text=slow`,
		`level=WARN msg="the handler has written a line to stdout that is not an answer (write other output to stderr)" line=connected`,
		`level=ERROR msg="the handler has answered a message again; only its first answer counts" id=8 result=done`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, log.String())
		}
	}
	if starts, _ := f.count(); starts != 1 {
		t.Errorf("got %d starts, want 1", starts)
	}
}

// A process that ignores the end of its stdin and SIGTERM is killed.
func TestProcessClose(t *testing.T) {
	f := &fake{stays: true}
	synctest.Test(t, func(t *testing.T) {
		p := newProcess(t, ProcessConfig{})
		p.start = f.start
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		p.Close()
		if d := time.Since(start); d != 2*DefaultGrace {
			t.Errorf("Close took %s, want %s", d, 2*DefaultGrace)
		}
	})
	if _, ends := f.count(); ends != "SIGKILL" {
		t.Errorf("got ends %s", ends)
	}
}

// Close also ends a process that becomes ready at this moment.
func TestProcessCloseDuringRestart(t *testing.T) {
	for range 20 { // a select is random
		f := &fake{}
		synctest.Test(t, func(t *testing.T) {
			p := newProcess(t, ProcessConfig{})
			closed := make(chan struct{})
			p.start = func(c *child) (program, error) {
				started, err := f.start(c)
				if n, _ := f.count(); n == 2 {
					go func() {
						defer close(closed)
						p.Close()
					}()
					synctest.Wait() // Close waits, and does not know this process
					c.read([]byte(`{"ready":true}`))
				}
				return started, err
			}
			if err := p.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := p.Handle(t.Context(), body("exit 1")); kind(err) != "retry" {
				t.Errorf("got %v", err)
			}
			<-closed
		})
	}
}

func TestProcessFirstStartFails(t *testing.T) {
	exits := func(code int, text string) *fake {
		return &fake{run: func(_ io.Reader, _, errs io.Writer, _ <-chan struct{}) int {
			fmt.Fprint(errs, text)
			return code
		}}
	}
	mute := &fake{run: func(in io.Reader, _, _ io.Writer, _ <-chan struct{}) int {
		_, _ = io.Copy(io.Discard, in)
		return 0
	}}
	for want, f := range map[string]*fake{
		"handler process was not ready: handler: exit status 1: ModuleNotFoundError: No module named 'shop'":                 exits(1, "ModuleNotFoundError: No module named 'shop'\n"),
		"handler process exited before it was ready: handler: exit status 0 (it must write the line {\"ready\":true} to its": exits(0, ""),
		"was stopped: it was not ready within 5m0s (it must write the line {\"ready\":true}":                                 mute,
	} {
		synctest.Test(t, func(t *testing.T) {
			var log testkit.Buffer
			p := newProcess(t, ProcessConfig{Processes: 2, ExecConfig: ExecConfig{Logger: textLog(&log)}})
			p.start = f.start
			expect(t, p.Start(t.Context()), want)
			if starts, _ := f.count(); starts != 2 {
				t.Errorf("got %d starts, want 2", starts)
			}
			if got := strings.Contains(log.String(), "waiting until the handler process is ready"); got != (f == mute) {
				t.Errorf("got log %s", log.String())
			}
		})
	}
}
