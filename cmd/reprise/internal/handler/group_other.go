//go:build !unix

package handler

import (
	"io"
	"os"
	"os/exec"
)

// On systems without process groups, only the program is killed, without a preceding SIGTERM.

func ownGroup(*exec.Cmd) {}

func terminate(p *os.Process) error { return p.Kill() }

func kill(p *os.Process) { _ = p.Kill() }

// Reap does nothing on this system.
func Reap(io.Reader) {}

type reaperProcess struct{}

func (r *Reaper) start(cmd *exec.Cmd) error { return cmd.Start() }

func (r *Reaper) forget(*os.Process) {}

// Close does nothing on this system.
func (r *Reaper) Close() {}
