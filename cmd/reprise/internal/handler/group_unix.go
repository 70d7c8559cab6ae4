//go:build unix

package handler

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup starts a program as the leader of a new process group.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// terminate asks the whole group of p to end.
func terminate(p *os.Process) error {
	err := syscall.Kill(-p.Pid, syscall.SIGTERM)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// kill ends the whole group of p. While one process of the group lives, the
// system gives its number to no other; when none does there is nothing to kill.
func kill(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
