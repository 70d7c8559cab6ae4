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

// recorder records the results that the programs print for each message.
type recorder struct {
	t    *testing.T
	conn *amqp.Connection
	ch   *amqp.Channel

	mu       sync.Mutex
	fails    map[string]int       // by message id
	attempts map[string][]attempt // by message id
	output   strings.Builder
}

// attempt is the result of an attempt by a program.
type attempt struct {
	by     string
	number int
	result string // done, retried, parked
}

// newRecorder deletes the queues and exchanges of a design, now and at the end of t. It keeps the shared exchange for other tests.
func newRecorder(t *testing.T, b testkit.Target, design topology.Topology, shared string) *recorder {
	t.Helper()
	conn, err := amqp.Dial(b.URL)
	must(t, err)
	r := &recorder{t: t, conn: conn, fails: map[string]int{}, attempts: map[string][]attempt{}}
	r.open()
	remove := func() {
		for _, q := range design.Queues {
			_, err := r.ch.QueueDelete(q.Name, false, false, false)
			must(t, err)
		}
		for _, e := range design.Exchanges {
			if e.Name != shared {
				must(t, r.ch.ExchangeDelete(e.Name, false, false))
			}
		}
	}
	remove()
	t.Cleanup(func() { remove(); must(t, conn.Close()) })
	return r
}

// open opens a channel in confirm mode.
func (r *recorder) open() {
	ch, err := r.conn.Channel()
	must(r.t, err)
	must(r.t, ch.Confirm(false))
	r.ch = ch
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
func (r *recorder) start(name, path string, args ...string) *program {
	r.t.Helper()
	p := &program{t: r.t, name: name, cmd: exec.Command(path, args...)}
	stdin, err := p.cmd.StdinPipe()
	must(r.t, err)
	stdout, err := p.cmd.StdoutPipe()
	must(r.t, err)
	p.stdin, p.cmd.Stderr = stdin, &lines{r: r, by: name}
	must(r.t, p.cmd.Start())
	p.read.Go(func() {
		for s := bufio.NewScanner(stdout); s.Scan(); {
			r.record(name, s.Text())
		}
	})
	r.t.Cleanup(func() {
		if !p.ended {
			_ = p.cmd.Process.Kill()
			p.read.Wait()
			_ = p.cmd.Wait()
		}
		if r.t.Failed() {
			r.t.Logf("output of the programs:\n%s", &r.output)
		}
	})
	return p
}

// end calls stop, and waits until the program exits. A nonzero exit status fails the test.
func (p *program) end(stop func() error) {
	p.t.Helper()
	must(p.t, stop())
	p.read.Wait()
	p.ended = true
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%s exited with %v", p.name, err)
	}
}

// lines records the standard error of a program.
type lines struct {
	r  *recorder
	by string
}

func (l *lines) Write(b []byte) (int, error) {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	fmt.Fprintf(&l.r.output, "%s: %s", l.by, b)
	return len(b), nil
}

// handled matches an output line of an example.
var handled = regexp.MustCompile(`(\S+)  attempt (\d+): (done|failed|parked)`)

// record parses a line of a program's output.
func (r *recorder) record(by, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.output, "%s: %s\n", by, line)
	if found := handled.FindStringSubmatch(line); found != nil {
		n, _ := strconv.Atoi(found[2])
		result := found[3]
		if result == "failed" {
			result = "retried"
		}
		r.attempts[found[1]] = append(r.attempts[found[1]], attempt{by, n, result})
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
		r.fails[output.ID] = output.Fails
	case "changed":
		r.t.Errorf("%s received a changed message %s: %s", by, output.ID, output.What)
	case "done", "retried", "parked":
		r.attempts[output.ID] = append(r.attempts[output.ID], attempt{by, output.Attempt, output.Event})
	}
}

// awaitConsumers waits until each queue has the given number of consumers.
func (r *recorder) awaitConsumers(queues []string, consumers int) {
	r.t.Helper()
	testkit.Eventually(r.t, within, func() error {
		for _, name := range queues {
			q, err := r.ch.QueueDeclarePassive(name, true, false, false, false, nil)
			if err != nil { // the queue does not exist, and the broker has closed the channel
				r.open()
				return err
			}
			if q.Consumers != consumers {
				return fmt.Errorf("consumers of queue %s: got %d, want %d", name, q.Consumers, consumers)
			}
		}
		return nil
	})
}

// publish publishes a message that always fails, and returns its ID.
func (r *recorder) publish(exchange, key string) string {
	r.t.Helper()
	id := rand.Text()
	r.mu.Lock()
	r.fails[id] = -1
	r.mu.Unlock()
	confirm, err := r.ch.PublishWithDeferredConfirmWithContext(r.t.Context(), exchange, key, true, false, amqp.Publishing{
		MessageId: id, DeliveryMode: amqp.Persistent, Body: []byte(id + " fails=-1"),
		Headers:     amqp.Table{"shop": "blau", "priority-customer": true, "items": []any{int32(1), int32(2)}},
		ContentType: "text/plain", CorrelationId: "order 7", Type: "order", AppId: "foreign",
	})
	must(r.t, err)
	confirmed, err := confirm.WaitContext(r.t.Context())
	if must(r.t, err); !confirmed {
		r.t.Fatal("message not confirmed")
	}
	return id
}

// awaitEnded waits until at least n messages are done or parked.
func (r *recorder) awaitEnded(n int) {
	r.t.Helper()
	testkit.Eventually(r.t, within, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		ended := 0
		for _, attempts := range r.attempts {
			if slices.ContainsFunc(attempts, func(a attempt) bool { return a.result != "retried" }) {
				ended++
			}
		}
		if ended < n {
			return fmt.Errorf("settled messages: got %d, want %d", ended, n)
		}
		return nil
	})
}

// checkResults compares the result of each message with the number of failures in its body. Unless exact is set, it ignores the
// number of attempts.
func (r *recorder) checkResults(poison string, exact bool) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	by := map[string]int{}
	for id, fails := range r.fails {
		attempts := slices.SortedFunc(slices.Values(r.attempts[id]), func(a, b attempt) int { return cmp.Compare(a.number, b.number) })
		ends, counted := 0, true
		for i, a := range attempts {
			by[a.by]++
			if a.result != "retried" {
				ends++
			}
			counted = counted && a.number == i+1
		}
		switch {
		case ends != 1:
			r.t.Errorf("message %s: got %d final results, want 1: %v", id, ends, attempts)
		case exact && !counted:
			r.t.Errorf("message %s: attempts must be numbered consecutively: got %v", id, attempts)
		case exact && fails >= 0 && len(attempts) != fails+1:
			r.t.Errorf("message %s must have %d attempts: got %v", id, fails+1, attempts)
		}
	}
	if last := r.attempts[poison]; last[len(last)-1].result != "parked" {
		r.t.Errorf("poison message: got %v, want parked", last)
	}
	for id := range r.attempts {
		if _, published := r.fails[id]; !published {
			r.t.Errorf("no program published message %q", id)
		}
	}
	if by["example"] == 0 || by["python"] == 0 || by["node"] == 0 {
		r.t.Errorf("attempts by program: got %v, want at least 1 each", by)
	}
}

// checkRemaining checks that the queues contain only the poison message, unchanged.
func (r *recorder) checkRemaining(design topology.Topology, poison string) {
	r.t.Helper()
	var found []amqp.Delivery
	for _, q := range design.Queues {
		for {
			d, ok, err := r.ch.Get(q.Name, true)
			must(r.t, err)
			if !ok {
				break
			}
			found = append(found, d)
			if !strings.HasSuffix(q.Name, "failed") {
				r.t.Errorf("unexpected message %s in queue %s", d.MessageId, q.Name)
			}
		}
	}
	if len(found) != 1 || found[0].MessageId != poison {
		r.t.Fatalf("remaining messages: got %d, want only the poison message", len(found))
	}
	d := found[0]
	if d.Headers["shop"] != "blau" || d.Headers["priority-customer"] != true || d.CorrelationId != "order 7" || d.Type != "order" ||
		d.AppId != "foreign" || d.ContentType != "text/plain" || string(d.Body) != poison+" fails=-1" {
		r.t.Errorf("poison message must be unchanged: got %+v", d)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
