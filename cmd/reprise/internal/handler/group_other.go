//go:build !unix

package handler

import (
	"io"
	"os"
	"os/exec"
)

// Without process groups only the program itself is ended, and not asked first.

func ownGroup(*exec.Cmd) {}

func terminate(p *os.Process) error { return p.Kill() }

func kill(p *os.Process) { _ = p.Kill() }

// Reap does nothing here.
func Reap(io.Reader) {}

type reaperProcess struct{}

func (r *Reaper) start(cmd *exec.Cmd) error { return cmd.Start() }

func (r *Reaper) forget(*os.Process) {}

// Close does nothing here.
func (r *Reaper) Close() {}
