//go:build unix

package handler

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/testkit"
)

// If the Reaper process is killed, the running programs continue, and the next start of a program also starts a new
// Reaper process.
func TestReaperRestartsAfterKill(t *testing.T) {
	var processes []*exec.Cmd
	r := &Reaper{Command: func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), reaping+"=1")
		processes = append(processes, cmd)
		return cmd
	}}
	defer r.Close()
	dir := t.TempDir()
	exists := func(name string) func() bool {
		return func() bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err == nil
		}
	}
	// run runs a program that exits as soon as the file "go" exists.
	run := func(name string) chan error {
		e := newExec(t, ExecConfig{Command: []string{"sh", "-c", "echo x >" + name + "; while [ ! -e go ]; do sleep 0.01; done"}, Dir: dir, Reaper: r})
		done := make(chan error)
		go func() { done <- e.Handle(bounded(t), full()) }()
		testkit.Eventually(t, 2*time.Minute, exists(name))
		return done
	}
	first := run("first")
	r.mu.Lock()
	process, ended := processes[0].Process, r.process.ended
	r.mu.Unlock()
	_ = process.Kill()
	<-ended
	second := run("second")
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, done := range []chan error{first, second} {
		if err := <-done; err != nil {
			t.Errorf("program failed: %v", err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "go")); err != nil {
		t.Fatal(err)
	}
	third := run("third")
	r.Close() // closes the input of the Reaper process, like a SIGKILL of this process
	if err := <-third; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("after the Reaper was closed: got error %v", err)
	}
}

// The error distinguishes a Reaper process that cannot be started from a missing program.
func TestReaperReportsStartError(t *testing.T) {
	r := &Reaper{Command: func() *exec.Cmd { return exec.Command(filepath.Join(t.TempDir(), "gone")) }}
	defer r.Close()
	err := newExec(t, ExecConfig{Command: []string{"true"}, Reaper: r}).Handle(bounded(t), full())
	if err == nil || !strings.Contains(err.Error(), "cannot start the reaper process") {
		t.Errorf("got error %v", err)
	}
}
