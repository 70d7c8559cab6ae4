package handler

import (
	"os"
	"os/exec"
	"sync"
)

// Reaper kills the programs of this process when this process has ended without
// ending them, for instance by SIGKILL. It is a process of its own, which starts with
// the first program. Command is required.
//
// On Unix, the Reaper kills the process group of each program. On Linux, the kernel
// also kills the program itself, so that a program that has only just started is not
// missed. A process that has left the group of its program lives on. On other systems
// there are no process groups, and the Reaper does nothing.
type Reaper struct {
	Command func() *exec.Cmd // returns a process that calls Reap with its standard input

	mu      sync.Mutex
	running map[*os.Process]struct{}
	process *reaperProcess // nil: none was started
	starts  chan func()    // for the thread that starts programs; nil: there is none
}
