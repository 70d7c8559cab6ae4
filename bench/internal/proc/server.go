package proc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	neturl "net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Server is a process that accepts connections at a URL.
type Server struct {
	URL string
	cmd *exec.Cmd
}

// startTimeout is the maximum time until a program of StartAt accepts connections.
const startTimeout = time.Minute

// Start starts the program with the given name and waits for its URL on the first line of its output. It copies the standard error of the program to log.
func Start(ctx context.Context, log io.Writer, name string, args ...string) (*Server, error) {
	cmd := command(log, name, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &Server{cmd: cmd}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		s.Kill()
		return nil, fmt.Errorf("%s exited before printing its URL", strings.Join(cmd.Args, " "))
	}
	s.URL = strings.TrimSpace(line)
	return s, nil
}

// StartAt is Start for a program that does not print its URL. It waits until the program accepts connections at url.
func StartAt(ctx context.Context, log io.Writer, url, name string, args ...string) (*Server, error) {
	at, err := neturl.Parse(url)
	if err != nil {
		return nil, err
	}
	s := &Server{URL: url, cmd: command(log, name, args...)}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := net.Dial("tcp", at.Host)
		if err == nil {
			return s, conn.Close()
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			s.Kill()
			return nil, fmt.Errorf("%s does not accept connections: %w", name, err)
		}
	}
}

func command(log io.Writer, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Stderr = log
	// Only the benchmark may receive signals from the terminal, because it stops its servers itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// FreePorts returns n different TCP ports of the loopback interface that are not in use.
func FreePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// PID returns the process ID.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Kill sends SIGKILL to the process and waits until it has exited.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// grace is the time after which Stop kills the process.
const grace = 60 * time.Second

// Stop sends SIGTERM to the process and waits until it has exited.
func (s *Server) Stop() error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	late := time.AfterFunc(grace, func() { _ = s.cmd.Process.Signal(os.Kill) })
	defer late.Stop()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", s.cmd.Path, err)
	}
	return nil
}
