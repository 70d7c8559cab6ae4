package handler

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// obey is a handler that executes the bodies of its messages, and returns its exit code:
//
//	done, park TEXT, retry TEXT, later SECONDS   the answer
//	hold, release                                answer nothing; answer all held messages in reverse order, then this one
//	raw TEXT                                     write the text, in which ID is the id
//	exit CODE TEXT                               write the text to stderr, and exit
//	deaf                                         neither answer nor read, until stopped is closed
func obey(in io.Reader, out, errs io.Writer, stopped <-chan struct{}) int {
	fmt.Fprintln(out, `{"ready":true}`)
	var held []uint64
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var m struct {
			ID   uint64
			Body string
		}
		if err := json.Unmarshal(line, &m); err != nil {
			fmt.Fprintln(errs, err)
			return 1
		}
		word, rest, _ := strings.Cut(m.Body, " ")
		switch word {
		case "done":
			fmt.Fprintf(out, `{"id":%d,"result":"done"}`+"\n", m.ID)
		case "park", "retry":
			fmt.Fprintf(out, `{"id":%d,"result":%q,"error":%q}`+"\n", m.ID, word, rest)
		case "later":
			fmt.Fprintf(out, `{"id":%d,"result":"retry","error":"later","retry_after":%s}`+"\n", m.ID, rest)
		case "hold":
			held = append(held, m.ID)
		case "release":
			slices.Reverse(held)
			for _, id := range append(held, m.ID) {
				fmt.Fprintf(out, `{"id":%d,"result":"done"}`+"\n", id)
			}
			held = nil
		case "raw":
			fmt.Fprint(out, strings.ReplaceAll(rest, "ID", strconv.FormatUint(m.ID, 10)))
		case "exit":
			code, text, _ := strings.Cut(rest, " ")
			fmt.Fprintln(errs, text)
			n, _ := strconv.Atoi(code)
			return n
		case "deaf":
			<-stopped
			return 0
		}
	}
}

// fake runs programs in this process, for tests in virtual time.
type fake struct {
	run    func(in io.Reader, out, errs io.Writer, stopped <-chan struct{}) int // default: obey
	memory atomic.Int64
	stays  bool // SIGTERM and the end of stdin have no effect

	mu     sync.Mutex
	starts []time.Time
	ends   []string // why the programs have exited
}

func (f *fake) start(c *child) (program, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.starts = append(f.starts, time.Now())
	in, stdin := io.Pipe()
	killed, exited := make(chan struct{}), make(chan exitState, 1)
	var once sync.Once
	end := func(how string) {
		once.Do(func() {
			f.mu.Lock()
			f.ends = append(f.ends, how)
			f.mu.Unlock()
			in.CloseWithError(io.ErrClosedPipe)
			close(killed)
		})
	}
	go func() {
		run := f.run
		if run == nil {
			run = obey
		}
		code := run(in, c, &c.stderr, killed)
		if f.stays {
			<-killed
		}
		end("exit")
		exited <- exitState{code, "exit status " + strconv.Itoa(code)}
	}()
	terminate := func() {
		if !f.stays {
			end("SIGTERM")
		}
	}
	return program{
		stdin: stdin, terminate: terminate, kill: func() { end("SIGKILL") },
		memory: f.memory.Load, wait: func() exitState { return <-exited },
	}, nil
}

// count returns the number of starts, and why programs have exited.
func (f *fake) count() (starts int, ends string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.starts), strings.Join(f.ends, " ")
}
