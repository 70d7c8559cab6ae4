//go:build !unix

package handler

import (
	"os"
	"os/exec"
)

// Without process groups only the program itself is ended, and not asked first.

func ownGroup(*exec.Cmd) {}

func terminate(p *os.Process) error { return p.Kill() }

func kill(p *os.Process) { _ = p.Kill() }
