package testkit

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const leaks = "TESTKIT_LEAKS"

func TestMain(m *testing.M) {
	if os.Getenv(leaks) != "" {
		Main(leaking{})
	}
	Main(m)
}

// leaking is a test run that passes, and that leaves a goroutine for the duration in the environment.
type leaking struct{}

func (leaking) Run() int {
	outlive(os.Getenv(leaks))
	return 0
}

func outlive(duration string) {
	d, _ := time.ParseDuration(duration)
	go time.Sleep(d)
}

func TestMainReportsGoroutines(t *testing.T) {
	for duration, want := range map[string]string{"100ms": "", "1h": "outlive"} {
		t.Run(duration, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), leaks+"="+duration)
			out, err := cmd.CombinedOutput()
			if (err == nil) != (want == "") || !strings.Contains(string(out), want) {
				t.Errorf("got %v and %q, want an error and a stack: %v", err, out, want != "")
			}
		})
	}
}
