package handler

import (
	"os"
	"os/exec"
	"sync"
)

// Reaper kills the programs that this process leaves behind, for instance after a SIGKILL. The Reaper is a separate
// process, which starts with the first program. Command is required.
//
// On Unix, the Reaper kills the process group of each program. On Linux, the kernel also kills the program itself,
// which covers a program that has only just started. A process that has left the group of its program survives. On
// other systems there are no process groups, and the Reaper does nothing.
type Reaper struct {
	Command func() *exec.Cmd // returns a process that calls Reap with its standard input

	mu      sync.Mutex
	running map[*os.Process]struct{}
	process *reaperProcess // nil: not started
	starts  chan func()    // for the thread that starts programs; nil: not started
}
