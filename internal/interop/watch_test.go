package interop

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// watch records the reports of all programs about messages.
type watch struct {
	t    *testing.T
	conn *amqp.Connection
	ch   *amqp.Channel

	mu     sync.Mutex
	fails  map[string]int     // by id of the published message
	tries  map[string][]tried // by id
	output strings.Builder
}

// tried is the result of an attempt by a program.
type tried struct {
	by      string
	attempt int
	came    string // done, retried, parked
}

// newWatch removes the queues and exchanges of a design from the broker, now and at the end of t. It keeps the shared exchange for
// other tests.
func newWatch(t *testing.T, b testkit.Target, design topology.Topology, shared string) *watch {
	t.Helper()
	conn, err := amqp.Dial(b.URL)
	must(t, err)
	w := &watch{t: t, conn: conn, fails: map[string]int{}, tries: map[string][]tried{}}
	w.open()
	remove := func() {
		for _, q := range design.Queues {
			_, err := w.ch.QueueDelete(q.Name, false, false, false)
			must(t, err)
		}
		for _, e := range design.Exchanges {
			if e.Name != shared {
				must(t, w.ch.ExchangeDelete(e.Name, false, false))
			}
		}
	}
	remove()
	t.Cleanup(func() { remove(); must(t, conn.Close()) })
	return w
}

// open opens a channel in confirm mode.
func (w *watch) open() {
	ch, err := w.conn.Channel()
	must(w.t, err)
	must(w.t, ch.Confirm(false))
	w.ch = ch
}

// program is a running program.
type program struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	read  sync.WaitGroup
	ended bool
}

// start starts a program and reads its output.
func (w *watch) start(name, path string, args ...string) *program {
	w.t.Helper()
	p := &program{t: w.t, name: name, cmd: exec.Command(path, args...)}
	stdin, err := p.cmd.StdinPipe()
	must(w.t, err)
	stdout, err := p.cmd.StdoutPipe()
	must(w.t, err)
	p.stdin, p.cmd.Stderr = stdin, &lines{w: w, by: name}
	must(w.t, p.cmd.Start())
	p.read.Go(func() {
		for s := bufio.NewScanner(stdout); s.Scan(); {
			w.hear(name, s.Text())
		}
	})
	w.t.Cleanup(func() {
		if !p.ended {
			_ = p.cmd.Process.Kill()
			p.read.Wait()
			_ = p.cmd.Wait()
		}
		if w.t.Failed() {
			w.t.Logf("what the programs said:\n%s", &w.output)
		}
	})
	return p
}

// end calls ask, and waits until the program ends normally.
func (p *program) end(ask func() error) {
	p.t.Helper()
	must(p.t, ask())
	p.read.Wait()
	p.ended = true
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%s: %v", p.name, err)
	}
}

// lines records other output of a program.
type lines struct {
	w  *watch
	by string
}

func (l *lines) Write(b []byte) (int, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	fmt.Fprintf(&l.w.output, "%s: %s", l.by, b)
	return len(b), nil
}

// handled matches an output line of an example.
var handled = regexp.MustCompile(`(\S+)  attempt (\d+): (done|failed|parked)`)

// hear records a line.
func (w *watch) hear(by, line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(&w.output, "%s: %s\n", by, line)
	if found := handled.FindStringSubmatch(line); found != nil {
		n, _ := strconv.Atoi(found[2])
		came := found[3]
		if came == "failed" {
			came = "retried"
		}
		w.tries[found[1]] = append(w.tries[found[1]], tried{by, n, came})
		return
	}
	var output struct {
		Event, ID, What string
		Attempt, Fails  int
	}
	if json.Unmarshal([]byte(line), &output) != nil {
		return
	}
	switch output.Event {
	case "published":
		w.fails[output.ID] = output.Fails
	case "changed":
		w.t.Errorf("%s got message %s changed: %s", by, output.ID, output.What)
	case "done", "retried", "parked":
		w.tries[output.ID] = append(w.tries[output.ID], tried{by, output.Attempt, output.Event})
	}
}

// consumed waits until each queue has the given number of consumers.
func (w *watch) consumed(queues []string, consumers int) {
	w.t.Helper()
	testkit.Eventually(w.t, within, func() error {
		for _, name := range queues {
			q, err := w.ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil { // the queue does not exist yet, and the broker has closed the channel
				w.open()
				return err
			}
			if q.Consumers != consumers {
				return fmt.Errorf("%s has %d consumers, not %d", name, q.Consumers, consumers)
			}
		}
		return nil
	})
}

// publish publishes a message that always fails, and returns its ID.
func (w *watch) publish(exchange, key string) string {
	w.t.Helper()
	id := rand.Text()
	w.mu.Lock()
	w.fails[id] = -1
	w.mu.Unlock()
	confirm, err := w.ch.PublishWithDeferredConfirmWithContext(w.t.Context(), exchange, key, true, false, amqp.Publishing{
		MessageId: id, DeliveryMode: amqp.Persistent, Body: []byte(id + " fails=-1"),
		Headers:     amqp.Table{"shop": "blau", "priority-customer": true, "items": []any{int32(1), int32(2)}},
		ContentType: "text/plain", CorrelationId: "order 7", Type: "order", AppId: "beside",
	})
	must(w.t, err)
	taken, err := confirm.WaitContext(w.t.Context())
	if must(w.t, err); !taken {
		w.t.Fatal("the message was not taken")
	}
	return id
}

// ended waits until n messages are done or parked.
func (w *watch) ended(n int) {
	w.t.Helper()
	testkit.Eventually(w.t, within, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		ended := 0
		for _, tries := range w.tries {
			if slices.ContainsFunc(tries, func(t tried) bool { return t.came != "retried" }) {
				ended++
			}
		}
		if ended < n {
			return fmt.Errorf("%d of %d have come to an end", ended, n)
		}
		return nil
	})
}

// compare compares the result of each message with the result that the message requested. Unless exact is set, it ignores the
// number of attempts.
func (w *watch) compare(poison string, exact bool) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	by := map[string]int{}
	for id, fails := range w.fails {
		tries := slices.SortedFunc(slices.Values(w.tries[id]), func(a, b tried) int { return cmp.Compare(a.attempt, b.attempt) })
		ends, counted := 0, true
		for i, t := range tries {
			by[t.by]++
			if t.came != "retried" {
				ends++
			}
			counted = counted && t.attempt == i+1
		}
		switch {
		case ends != 1:
			w.t.Errorf("message %s came to an end %d times: %v", id, ends, tries)
		case exact && !counted:
			w.t.Errorf("message %s was not counted on by everybody: %v", id, tries)
		case exact && fails >= 0 && len(tries) != fails+1:
			w.t.Errorf("message %s was to fail %d times: %v", id, fails, tries)
		}
	}
	if last := w.tries[poison]; last[len(last)-1].came != "parked" {
		w.t.Errorf("the message that always fails: %v", last)
	}
	for id := range w.tries {
		if _, published := w.fails[id]; !published {
			w.t.Errorf("message %q was not published by anybody", id)
		}
	}
	if by["example"] == 0 || by["python"] == 0 || by["node"] == 0 {
		w.t.Errorf("attempts were made by %v: not by everybody", by)
	}
}

// left checks that only the message that always fails is still in the queues, unchanged.
func (w *watch) left(design topology.Topology, poison string) {
	w.t.Helper()
	var found []amqp.Delivery
	for _, q := range design.Queues {
		for {
			d, ok, err := w.ch.Get(q.Name, true)
			must(w.t, err)
			if !ok {
				break
			}
			found = append(found, d)
			if !strings.HasSuffix(q.Name, "failed") {
				w.t.Errorf("message %s is in %s", d.MessageId, q.Name)
			}
		}
	}
	if len(found) != 1 || found[0].MessageId != poison {
		w.t.Fatalf("%d messages are left, want the one that always fails", len(found))
	}
	d := found[0]
	if d.Headers["shop"] != "blau" || d.Headers["priority-customer"] != true || d.CorrelationId != "order 7" || d.Type != "order" ||
		d.AppId != "beside" || d.ContentType != "text/plain" || string(d.Body) != poison+" fails=-1" {
		w.t.Errorf("it is %+v", d)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
