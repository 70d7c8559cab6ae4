//go:build unix

package handler

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes the program of cmd the leader of a new process group.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// terminate sends SIGTERM to the process group of p.
func terminate(p *os.Process) error {
	err := syscall.Kill(-p.Pid, syscall.SIGTERM)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// kill sends SIGKILL to the process group of p. The system does not reuse the ID of a group that contains a process. If
// the group is empty, the call normally fails.
func kill(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
