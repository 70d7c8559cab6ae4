package handler

import (
	"os/exec"
	"syscall"
)

// killWithThread has the kernel kill a program when the thread ends that starts it.
func killWithThread(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL }
