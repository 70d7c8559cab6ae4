package handler

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// killWithThread makes the kernel kill a program when the thread that started the program exits.
func killWithThread(cmd *exec.Cmd) { cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL }

// killStart kills the process groups of the processes that have the given start in their environment. While it reads the
// list of processes, the program can start a child and exit. Therefore it reads the list again, until it has found no
// process twice in succession. The number of readings is limited, because a process that waits for a broken disk does not
// exit.
func killStart(start string) {
	variable := []byte(startVariable + "=" + start + "\x00")
	for unseen, readings := 0, 0; unseen < 2 && readings < 100; unseen, readings = unseen+1, readings+1 {
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, file := range files {
			env, err := os.ReadFile(file)
			if err != nil || !bytes.Contains(env, variable) { // the process has exited or is not ours
				continue
			}
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if group, err := syscall.Getpgid(pid); err == nil && group > 1 {
				_ = syscall.Kill(-group, syscall.SIGKILL)
				unseen = -1
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}
