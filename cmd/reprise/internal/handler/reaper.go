package handler

import (
	"os"
	"os/exec"
	"sync"
)

// Reaper kills the programs that are still running when this process exits, for example after a SIGKILL. It starts a
// separate process, the Reaper process, before the first program. Command is required.
//
// On Unix, the Reaper process kills the process group of each program. On Linux, it also finds a program that has just
// started and is not registered yet, and its children, by a variable in their environment, and the kernel kills the
// program itself. A process that has left the group of its program survives. On systems other than Unix, the Reaper does
// nothing.
type Reaper struct {
	Command func() *exec.Cmd // returns a command that calls Reap with its standard input

	mu      sync.Mutex
	running map[*os.Process]struct{}
	process *reaperProcess // nil: not started
	starts  chan func()    // for the thread that starts programs; nil: not started
}
