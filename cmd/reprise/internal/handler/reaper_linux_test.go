package handler

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/testkit"
)

// dying is the environment variable that makes the test binary run a program in this directory and kill itself.
const dying = "HANDLER_TEST_DIES"

func init() {
	if dir := os.Getenv(dying); dir != "" && os.Getenv(reaping) == "" {
		runAndDie(dir)
		os.Exit(1)
	}
}

// A SIGKILL between the start of a program and its registration kills the children of the program, too.
func TestReaperKillsChildrenOfUnregisteredProgram(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), dying+"="+dir)
	if out, err := cmd.CombinedOutput(); err == nil || err.Error() != "signal: killed" {
		t.Fatalf("got error %v, want signal: killed\n%s", err, out)
	}
	child, err := os.ReadFile(filepath.Join(dir, "child"))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, func() bool {
		command, _ := os.ReadFile("/proc/" + strings.TrimSpace(string(child)) + "/cmdline") // empty after the exit
		return !bytes.Contains(command, []byte("sleep"))
	})
}

// runAndDie runs a program that starts a child, and kills this process before it registers the program.
func runAndDie(dir string) {
	r := &Reaper{Command: func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), reaping+"=1")
		return cmd
	}}
	if err := r.ensure(); err != nil {
		panic(err)
	}
	r.process.pipe = &dyingPipe{r.process.pipe, filepath.Join(dir, "child")}
	e, err := NewExec(ExecConfig{Command: []string{"sh", "-c", "sleep 300 & echo $! >new; mv new child; wait"}, Dir: dir, Reaper: r})
	if err != nil {
		panic(err)
	}
	_ = e.Handle(context.Background(), full())
}

// dyingPipe kills this process instead of the first registration, as soon as the file child exists.
type dyingPipe struct {
	io.WriteCloser
	child string
}

func (p *dyingPipe) Write(line []byte) (int, error) {
	if line[0] != '+' {
		return p.WriteCloser.Write(line)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(p.child); err == nil {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	panic("the program has not started its child")
}
