package chaos

import (
	"bufio"
	"context"
	"flag"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/internal/chaos/load"
)

var rounds = flag.Int("chaos.rounds", 6, "number of times that the broker is killed")

// dataVariable is the environment variable that contains the data directory of a broker. If it is set, the test program
// runs this broker.
const dataVariable = "REPRISE_CHAOS_DATA"

func TestMain(m *testing.M) {
	if dir := os.Getenv(dataVariable); dir != "" {
		if err := serve(dir); err != nil {
			println(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	if arguments := os.Getenv(keyedVariable); arguments != "" {
		if err := work(arguments); err != nil {
			println(err.Error())
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serve runs a broker until SIGTERM.
func serve(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	b, err := broker.New(broker.Config{Store: disk.Dir(dir), MessageCache: 64 << 10, Logger: log})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go b.Serve(l)
	println(l.Addr().String())
	<-ctx.Done()
	return b.Shutdown(context.Background())
}

// process is a broker in a separate process.
type process struct {
	*exec.Cmd
	address string
	log     sync.WaitGroup // for the goroutine that reads the log output
}

// ended waits until the process exits.
func (p *process) ended() error {
	p.log.Wait() // must precede Wait, which closes the output pipes
	return p.Wait()
}

func start(t *testing.T, dir string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0])}
	p.Env = append(os.Environ(), dataVariable+"="+dir)
	out, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("broker exited before it printed its address")
	}
	p.address = lines.Text()
	if _, _, err := net.SplitHostPort(p.address); err != nil {
		t.Fatalf("first line of the broker must be its host:port: got %q", p.address)
	}
	p.log.Go(func() {
		for lines.Scan() {
			t.Error("broker logged an error: ", lines.Text())
		}
	})
	return p
}

func (p *process) dial() (*amqp.Connection, error) {
	return amqp.Dial("amqp://guest:guest@" + p.address)
}

// After SIGKILL at any moment, the restarted broker has all confirmed messages.
func TestKilledBrokerKeepsConfirmedMessages(t *testing.T) {
	dir := t.TempDir() + "/data"
	l := load.NewLedger(t)
	seed := rand.Uint64()
	t.Logf("seed: %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	lives := *rounds
	if testing.Short() {
		lives = min(lives, 2)
	}
	for range lives {
		p := start(t, dir)
		u := &load.Use{Ledger: l, Dial: p.dial}
		u.Begin(t)
		time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond) // under load
		l.End()
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.ended()
		u.Lost()
		if t.Failed() {
			return
		}
	}
	p := start(t, dir)
	done, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	u := &load.Use{Ledger: l, Dial: p.dial, Done: done}
	u.Begin(t)
	<-done.Done()
	u.Finish(t)
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.ended(); err != nil {
		t.Errorf("broker exited with %v", err)
	}
	l.Check()
}
