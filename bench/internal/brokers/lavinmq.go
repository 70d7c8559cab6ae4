package brokers

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/reprisemq/reprise/bench/internal/proc"
)

// Program returns the path of a program of LavinMQ, which the user installs: the value of the environment variable with
// this name in upper case, or the program in PATH.
func Program(name string) (string, error) {
	variable := strings.ToUpper(name)
	path, err := exec.LookPath(cmp.Or(os.Getenv(variable), name))
	if err != nil {
		return "", fmt.Errorf("%w (install LavinMQ, or set %s to the path: see bench/README.md)", err, variable)
	}
	return path, nil
}

// lavinmq returns a broker with LavinMQ's defaults: it confirms a persistent message after a sync.
func (s *Setup) lavinmq() (Broker, error) {
	program, err := Program(LavinMQ)
	if err != nil {
		return nil, err
	}
	ports, err := proc.FreePorts(2)
	if err != nil {
		return nil, err
	}
	data, err := os.MkdirTemp(s.Data, "lavinmq-")
	if err != nil {
		return nil, err
	}
	b := &local{setup: s, data: data, url: fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", ports[0])}
	b.command = []string{
		program, "--data-dir", data, "--log-level", "error", "--amqp-port", fmt.Sprint(ports[0]),
		"--clustering-port", fmt.Sprint(ports[1]), "--control-unix-path", filepath.Join(data, "control.sock"),
		"--http-port=-1", "--mqtt-port=-1", "--metrics-http-port=-1",
	}
	return b, nil
}
