package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/reprisemq/reprise/bench/internal/brokers"
	"github.com/reprisemq/reprise/bench/internal/proc"
)

// The kinds of stores.
const (
	rabbitMQ = "RabbitMQ"
	lavinMQ  = "LavinMQ"
	embedded = "embedded broker"
	redis    = "Redis"
	postgres = "PostgreSQL"
)

// newStore returns a store with the settings that its users recommend for durable data; the README lists them.
func newStore(kind string, o options, tmp string, log io.Writer) (brokers.Broker, error) {
	setup := brokers.Setup{Root: o.root, Data: tmp, Log: log}
	switch kind {
	case rabbitMQ:
		return setup.New(brokers.RabbitMQ)
	case lavinMQ:
		return setup.New(brokers.LavinMQ)
	}
	dir, err := os.MkdirTemp(tmp, "store-")
	if err != nil {
		return nil, err
	}
	ports, err := proc.FreePorts(1)
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, port: ports[0], log: log}
	switch kind {
	case embedded:
		s.url = "amqp://guest:guest@127.0.0.1:%d/"
		s.command = []string{o.reprise, "broker", "--listen", fmt.Sprint("127.0.0.1:", s.port), "--data", dir, "--log-level", "error"}
	case redis:
		s.url = "redis://127.0.0.1:%d/0"
		s.command = []string{
			"redis-server", "--bind", "127.0.0.1", "--port", fmt.Sprint(s.port), "--dir", dir,
			"--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction",
		}
	case postgres:
		return s, s.postgres()
	}
	return s, nil
}

// server is a store in a process that this program starts. Its port does not change.
type server struct {
	dir     string
	port    int
	url     string // format of port
	command []string
	ready   []string // a command that succeeds if the store is ready. Default: accepted connections show this
	owner   *syscall.Credential
	log     io.Writer
	cmd     *exec.Cmd
}

// postgres creates a database.
func (s *server) postgres() error {
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(bins) == 0 {
		return fmt.Errorf("initdb not found (apt-get install postgresql)")
	}
	bin := slices.Max(bins)
	if os.Getuid() == 0 { // PostgreSQL refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			return err
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		s.owner = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(s.dir, uid, gid); err != nil {
			return err
		}
		if err := os.Chmod(filepath.Dir(s.dir), 0o755); err != nil {
			return err
		}
	}
	data, port := filepath.Join(s.dir, "data"), fmt.Sprint(s.port)
	if out, err := s.exec(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C").CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	s.url = "postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable"
	s.command = []string{filepath.Join(bin, "postgres"), "-D", data, "-k", s.dir, "-h", "127.0.0.1", "-p", port}
	s.ready = []string{filepath.Join(bin, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", port}
	return nil
}

func (s *server) exec(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.owner}
	return cmd
}

// Start waits until the store is ready.
func (s *server) Start(ctx context.Context) error {
	s.cmd = s.exec(s.command[0], s.command[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if s.ready != nil {
			err = exec.CommandContext(ctx, s.ready[0], s.ready[1:]...).Run()
		} else if conn, dialErr := net.Dial("tcp", fmt.Sprint("127.0.0.1:", s.port)); dialErr != nil {
			err = dialErr
		} else {
			conn.Close()
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("%s does not accept connections: %w", s.command[0], err)
		}
	}
}

func (s *server) URL() string { return fmt.Sprintf(s.url, s.port) }
func (s *server) PID() int    { return s.cmd.Process.Pid }
func (s *server) Stop() error { return s.Kill() }

// Kill kills the process and its children.
func (s *server) Kill() error {
	for _, pid := range descendants(processes(), []int{s.PID()}) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = s.cmd.Wait()
	s.cmd = nil
	return nil
}

func (s *server) Remove() error {
	if s.cmd != nil {
		_ = s.Kill()
	}
	return os.RemoveAll(s.dir)
}
