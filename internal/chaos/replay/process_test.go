package replay

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	_ "modernc.org/sqlite" // driver "sqlite"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/failed"
	"github.com/reprisemq/reprise/internal/testkit"
)

// What this program is, if it is not the test: one of the roles.
const (
	roleVariable    = "REPRISE_CHAOS_ROLE"
	brokerVariable  = "REPRISE_CHAOS_BROKER"
	archiveVariable = "REPRISE_CHAOS_ARCHIVE"
	replayVariable  = "REPRISE_CHAOS_REPLAY"
)

var roles = map[string]func(context.Context) error{"broker": serve, "replay": replay, "ingest": ingest}

func TestMain(m *testing.M) {
	role, found := roles[os.Getenv(roleVariable)]
	if !found {
		os.Exit(testkit.Waiting{M: m}.Run())
	}
	if err := role(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve runs a broker until it is killed.
func serve(context.Context) error {
	b, err := broker.New(broker.Config{})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("amqp://guest:guest@" + l.Addr().String())
	return b.Serve(l)
}

// replay carries out a replay.
func replay(ctx context.Context) error {
	a, c, err := open(ctx)
	if err != nil {
		return err
	}
	r, err := failed.NewReplayer(c, a, failed.ReplayerConfig{Lease: time.Second})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	id, err := strconv.ParseInt(os.Getenv(replayVariable), 10, 64)
	if err != nil {
		return err
	}
	got, err := r.Finish(ctx, failed.ReplayID(id))
	if err != nil {
		return err
	}
	if got.State != failed.ReplayDone && got.State != failed.ReplayVerifying {
		return fmt.Errorf("it has ended as %+v", got)
	}
	return nil
}

// ingest takes messages into the archive until it is killed.
func ingest(ctx context.Context) error {
	a, c, err := open(ctx)
	if err != nil {
		return err
	}
	in, err := failed.NewIngest(c, a, failed.IngestConfig{Queues: []string{failedQueue}, Lease: time.Second})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return in.Run(ctx)
}

func open(ctx context.Context) (*failed.Archive, *reprise.Client, error) {
	_, a, err := openArchive(ctx, os.Getenv(archiveVariable))
	if err != nil {
		return nil, nil, err
	}
	c, err := reprise.Dial(ctx, os.Getenv(brokerVariable), nil)
	return a, c, err
}

func openArchive(ctx context.Context, file string) (*sql.DB, *failed.Archive, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err != nil {
		return nil, nil, err
	}
	a, err := failed.Open(ctx, db, failed.Config{Dialect: failed.SQLite})
	return db, a, err
}

// process is this program in one of its roles.
type process struct {
	t *testing.T
	*exec.Cmd
	said string // its first line
}

func start(t *testing.T, role string, environment ...string) *process {
	t.Helper()
	p := &process{t: t, Cmd: exec.Command(os.Args[0])}
	p.Env = append(append(os.Environ(), roleVariable+"="+role), environment...)
	p.Stderr = os.Stderr
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatalf("the %s has not begun", role)
	}
	p.said = lines.Text()
	return p
}

// kill ends the process wherever it is (SIGKILL).
func (p *process) kill() {
	p.t.Helper()
	if err := p.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
	_ = p.Wait()
}
