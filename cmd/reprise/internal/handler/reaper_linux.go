package handler

import (
	"os/exec"
	"syscall"
)

// killWithThread makes the kernel kill a program when the thread that started the program exits.
func killWithThread(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL }
