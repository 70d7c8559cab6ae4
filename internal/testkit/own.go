package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
)

// An Own broker is a test's alone, which may stop it and start it again on the same data. It is at the same URL then.
type Own struct {
	Target
	stop, start func()
}

// Stop ends the broker in order.
func (o *Own) Stop() { o.stop() }

// Start brings it back.
func (o *Own) Start() { o.start() }

// EachOwn is [Each] for a test that stops and starts brokers. The RabbitMQs are further nodes, since others use those that
// there are; `make test` says how they are to be called. They take seconds to start, while other tests go on.
func EachOwn(t *testing.T, test func(t *testing.T, b *Own)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		test(t, ownEmbedded(t))
	})
	for _, b := range RabbitMQs() {
		node, known := os.LookupEnv("REPRISE_TEST_RESTART_" + strings.ReplaceAll(b.Version, ".", ""))
		if known && node == "" {
			t.Logf("RabbitMQ %s is not restarted: it was not started by scripts/test", b.Version)
			continue
		}
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			if !known {
				t.Skipf("needs a RabbitMQ %s that may be restarted: run make test", b.Version)
			}
			test(t, ownRabbitMQ(t, b, node))
		})
	}
}

func ownEmbedded(t *testing.T) *Own {
	config := broker.Config{Store: disk.Dir(filepath.Join(t.TempDir(), "data"))}
	addr := "127.0.0.1:0"
	stop := func() {}
	o := &Own{Target: Target{Name: "embedded", Version: "4.3"}}
	o.start = func() {
		_, addr, stop = serve(t, config, addr)
		o.URL = "amqp://guest:guest@" + addr + "/"
	}
	o.stop = func() {
		stop()
		stop = func() {}
	}
	t.Cleanup(o.Stop)
	o.Start()
	return o
}

func ownRabbitMQ(t *testing.T, b Target, node string) *Own {
	_, file, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(file), "../../scripts/rabbitmq")
	run := func(command string) string {
		t.Helper()
		cmd := exec.Command(script, command, b.Version, "--name", node)
		var log strings.Builder
		cmd.Stderr = &log
		answer, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, log.String())
		}
		return strings.TrimSpace(string(answer))
	}
	o := &Own{Target: b}
	o.start = func() { o.URL = run("start") }
	o.stop = func() { run("stop") }
	// An orderly stop would take 3.10 six seconds, for data that goes.
	t.Cleanup(func() {
		run("kill")
		run("rm")
	})
	o.Start()
	return o
}
