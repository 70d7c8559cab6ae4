package replay

import (
	"bufio"
	"cmp"
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
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/internal/archive/failed"
	"github.com/reprisemq/reprise/internal/archive/ingest"
	"github.com/reprisemq/reprise/internal/archive/replay"
	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/testkit"
)

// These variables set the role of the program. Without them, it runs the tests.
const (
	roleVariable    = "REPRISE_CHAOS_ROLE"
	brokerVariable  = "REPRISE_CHAOS_BROKER"
	archiveVariable = "REPRISE_CHAOS_ARCHIVE"
	replayVariable  = "REPRISE_CHAOS_REPLAY"
	addressVariable = "REPRISE_CHAOS_ADDRESS" // address of the broker; default: any free port
	dataVariable    = "REPRISE_CHAOS_DATA"    // directory of the broker; default: in memory
	notesVariable   = "REPRISE_CHAOS_NOTES"   // file for the records of the worker
)

// lease is the duration of the leases of a killed process.
const lease = time.Second

var roles = map[string]func(context.Context) error{"broker": serve, "replay": replayRole, "ingest": ingestRole, "worker": work, "service": serviceRole, "act": act}

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
	var cfg broker.Config
	if dir := os.Getenv(dataVariable); dir != "" {
		cfg.Store = disk.Dir(dir)
	}
	b, err := broker.New(cfg)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", cmp.Or(os.Getenv(addressVariable), "127.0.0.1:0"))
	if err != nil {
		return err
	}
	fmt.Println("amqp://guest:guest@" + l.Addr().String())
	return b.Serve(l)
}

// replayRole finishes the replay whose ID is in replayVariable.
func replayRole(ctx context.Context) error {
	a, c, err := open(ctx)
	if err != nil {
		return err
	}
	r := replay.New(c, a, replay.Config{Lease: lease})
	fmt.Println("ready")
	id, err := strconv.ParseInt(os.Getenv(replayVariable), 10, 64)
	if err != nil {
		return err
	}
	got, err := r.Finish(ctx, failed.ReplayID(id))
	if err != nil {
		return err
	}
	if got.State != failed.ReplayDone {
		return fmt.Errorf("replay: got %+v, want done", got)
	}
	return nil
}

// ingestRole adds messages to the archive until it is killed.
func ingestRole(ctx context.Context) error {
	a, c, err := open(ctx)
	if err != nil {
		return err
	}
	return take(ctx, a, c)
}

// take adds messages to an archive until ctx is done.
func take(ctx context.Context, a *store.Archive, c *reprise.Client) error {
	in, err := ingest.New(c, a, ingest.Config{Queues: []string{failedQueue}, Lease: lease})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return in.Run(ctx)
}

// Each record of the worker begins with one of these words, followed by the message ID.
const (
	noteSucceeded  = "succeeded"
	noteRefused    = "refused"
	noteUnreported = "unreported"
)

// work handles messages until it is killed. One message in five is refused, one succeeds at the second attempt, and three
// succeed at the first attempt. The handler records each result before it returns, so that every settled message has a
// record.
func work(ctx context.Context) error {
	file, err := os.OpenFile(os.Getenv(notesVariable), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	note := func(verb, message string) error {
		_, err := fmt.Fprintln(file, verb, message)
		return err
	}
	c, err := reprise.Dial(ctx, os.Getenv(brokerVariable), &reprise.Config{
		Observer: reprise.ObserverFunc(func(e reprise.Event) {
			if e.Kind == reprise.EventUnreported {
				_ = note(noteUnreported, e.MessageID)
			}
		}),
	})
	if err != nil {
		return err
	}
	w, err := reprise.NewWorker(c, reprise.WorkerConfig{
		Queue: workQueue, Concurrency: 8, CrashLimit: -1,
		Policy: reprise.Policy{MaxAttempts: 3, Backoff: backoff.Fixed(time.Second)},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error {
			switch n := m.MessageID[len(m.MessageID)-1] % 5; {
			case n == 0:
				return reprise.Park(errors.Join(errors.New("refused"), note(noteRefused, m.MessageID)))
			case n == 1 && m.Attempt == 1:
				return errors.New("not yet")
			}
			return note(noteSucceeded, m.MessageID)
		}),
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return w.Run(ctx)
}

func open(ctx context.Context) (*store.Archive, *reprise.Client, error) {
	_, a, err := openArchive(ctx, os.Getenv(archiveVariable))
	if err != nil {
		return nil, nil, err
	}
	c, err := reprise.Dial(ctx, os.Getenv(brokerVariable), nil)
	return a, c, err
}

func openArchive(ctx context.Context, file string) (*sql.DB, *store.Archive, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err != nil {
		return nil, nil, err
	}
	a, err := store.Open(ctx, db, store.Config{Dialect: store.SQLite})
	return db, a, err
}

// process is this program in one of its roles.
type process struct {
	t *testing.T
	*exec.Cmd
	firstLine string // first line of the output
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
		t.Fatalf("%s exited before it printed a line", role)
	}
	p.firstLine = lines.Text()
	return p
}

// kill sends SIGKILL to the process.
func (p *process) kill() {
	p.t.Helper()
	if err := p.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
	_ = p.Wait()
}
