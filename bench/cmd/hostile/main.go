// Command hostile runs attacks by hostile clients, one after the other, each against a new broker in a separate
// process. For each attack, it prints a row of a Markdown table: the memory use of the broker and the latency of a
// well-behaved client.
//
//	hostile -reprise bin/reprise
//	hostile -reprise bin/reprise -run 'tables|channels' -duration 30s
//
// The well-behaved client publishes 200 messages per second with publisher confirms, and also consumes and acknowledges
// them. The command measures the latency of this client before the attack (for five seconds, unless -before is set) and
// during the attack.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/reprisemq/reprise/bench/internal/proc"
)

type options struct {
	reprise  string
	only     string
	duration time.Duration
	before   time.Duration
	most     int64
	list     bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.reprise, "reprise", "bin/reprise", "`file` of the command reprise")
	flag.StringVar(&o.only, "run", "", "run only attacks whose names match this `regexp` (default all)")
	flag.DurationVar(&o.duration, "duration", 20*time.Second, "duration of attacks without an end")
	flag.DurationVar(&o.before, "before", 5*time.Second, "measurement of the well-behaved client before an attack")
	flag.Int64Var(&o.most, "most", 2<<30, "maximum number of bytes that an attack sends")
	flag.BoolVar(&o.list, "list", false, "list the attacks")
	flag.Parse()
	if err := run(ctx, os.Stdout, &o); err != nil {
		fmt.Fprintln(os.Stderr, "hostile:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, o *options) error {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return err
	}
	if o.list {
		for _, a := range attacks {
			fmt.Fprintln(out, a.name)
		}
		return nil
	}
	fmt.Fprint(out, header)
	for _, a := range attacks {
		if !only.MatchString(a.name) {
			continue
		}
		row, err := o.attempt(ctx, a)
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		fmt.Fprintln(out, row)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

const header = `| attack | sent | peak memory of the broker | the attacker | p50 before, during | p99 before, during |
|---|--:|--:|---|--:|--:|
`

// attempt runs an attack on a new broker, and returns the row of the table.
func (o *options) attempt(ctx context.Context, a attack) (string, error) {
	management, err := freeAddress()
	if err != nil {
		return "", err
	}
	args := []string{"broker", "--memory", "--listen", "127.0.0.1:0", "--management", management, "--log-level", "error"}
	server, err := proc.Start(ctx, os.Stderr, o.reprise, append(args, a.flags...)...)
	if err != nil {
		return "", err
	}
	kill := sync.OnceFunc(server.Kill)
	defer kill()
	at, err := url.Parse(server.URL)
	if err != nil {
		return "", err
	}
	t := &target{address: at.Host, url: server.URL, management: "http://" + management, most: o.most}
	if a.prepare != nil {
		if err := a.prepare(ctx, t); err != nil {
			return "", fmt.Errorf("cannot prepare the attack: %w", err)
		}
		t.sent.Store(0)
	}
	w, err := newMonitor(server.URL)
	if err != nil {
		return "", err
	}
	defer func() {
		kill() // kill before close: if the broker has stopped reading, close would block
		w.close()
	}()
	sleep(ctx, o.before)
	before := w.next()
	memory, err := proc.MemoryOf(server.PID())
	if err != nil {
		return "", err
	}
	if err := proc.ResetPeak(server.PID()); err != nil {
		return "", err
	}
	attacking, cancel := context.WithTimeout(ctx, max(o.duration, a.lasts))
	defer cancel()
	t.began = time.Now()
	outcome := a.run(attacking, t)
	if left := 3*time.Second - time.Since(t.began); left > 0 {
		sleep(ctx, left) // so that the measurement takes at least 3 s
	}
	during := w.next()
	after, err := proc.MemoryOf(server.PID())
	if err != nil {
		return "", fmt.Errorf("broker exited: %w", err)
	}
	t.closeAll()
	if troubles := w.troubles(a.blocks); troubles != "" {
		outcome += "; well-behaved client: " + troubles
	}
	return fmt.Sprintf("| %s | %s | %s + %s | %s | %s, %s | %s, %s |", a.name, size(t.sent.Load()), size(memory.Resident),
		size(after.Peak-memory.Resident), strings.ReplaceAll(outcome, "|", "\\|"),
		before.at(50), during.at(50), before.at(99), during.at(99)), nil
}

// target is the attacked broker.
type target struct {
	address, url, management string
	most                     int64 // number of sent bytes after which an attack ends
	began                    time.Time

	sent counter

	mu    sync.Mutex
	conns []net.Conn
}

// keep registers a connection for closeAll, which closes it after the measurement.
func (t *target) keep(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns = append(t.conns, c)
}

func (t *target) closeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.conns {
		_ = c.Close()
	}
}

// after formats a description and appends the time since the start of the attack.
func (t *target) after(format string, args ...any) string {
	return fmt.Sprintf(format, args...) + fmt.Sprintf(", after %.1f s", time.Since(t.began).Seconds())
}

// spent reports whether the attack has sent at least t.most bytes.
func (t *target) spent() bool { return t.sent.Load() >= t.most }

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func size(n int64) string {
	switch {
	case n < 0:
		return "0"
	case n < 1<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
