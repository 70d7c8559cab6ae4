package proc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Server is a process that has started and printed its URL on the first line of its output.
type Server struct {
	URL string
	cmd *exec.Cmd
}

// Start starts the program with the given name and waits for its URL. It copies the standard error of the program to log.
func Start(ctx context.Context, log io.Writer, name string, args ...string) (*Server, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = log
	// Only the benchmark may receive signals from the terminal, because it stops its servers itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
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
