package conformance

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
	"github.com/reprisemq/reprise/internal/testkit"
)

// ownBroker is a broker for a single test. A test can restart the broker, which then has the same data and the same
// URL.
type ownBroker struct {
	testkit.Target
	stop, start func()
}

// eachOwn is like testkit.Each, for tests that stop and start brokers. It starts additional RabbitMQ nodes, because
// other tests use the shared nodes. `make test` sets environment variables to the names of the additional nodes. These
// nodes take several seconds to start, so the RabbitMQ subtests run in parallel with other tests.
func eachOwn(t *testing.T, test func(t *testing.T, b *ownBroker)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		test(t, ownEmbedded(t))
	})
	for _, b := range testkit.RabbitMQs() {
		node, known := os.LookupEnv("REPRISE_TEST_RESTART_" + strings.ReplaceAll(b.Version, ".", ""))
		if known && node == "" {
			t.Logf("skipping the restart of RabbitMQ %s, because scripts/test did not start it", b.Version)
			continue
		}
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			if !known {
				t.Skipf("test requires RabbitMQ %s with permission to restart (run make test)", b.Version)
			}
			test(t, ownRabbitMQ(t, b, node))
		})
	}
}

func ownEmbedded(t *testing.T) *ownBroker {
	config := broker.Config{Store: disk.Dir(filepath.Join(t.TempDir(), "data"))}
	addr := "127.0.0.1:0"
	o := &ownBroker{Target: testkit.Target{Name: "embedded", Version: "4.3"}}
	o.start = func() {
		b, err := broker.New(config)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- b.Serve(l) }()
		addr = l.Addr().String()
		o.URL = "amqp://guest:guest@" + addr + "/"
		o.stop = func() {
			if err := b.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			<-served
			o.stop = func() {}
		}
	}
	o.start()
	t.Cleanup(func() { o.stop() })
	return o
}

func ownRabbitMQ(t *testing.T, b testkit.Target, node string) *ownBroker {
	run := func(command string) string {
		t.Helper()
		cmd := exec.Command("../scripts/rabbitmq", command, b.Version, "--name", node)
		var log strings.Builder
		cmd.Stderr = &log
		answer, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, log.String())
		}
		return strings.TrimSpace(string(answer))
	}
	o := &ownBroker{Target: b}
	o.start = func() { o.URL = run("start") }
	o.stop = func() { run("stop") }
	// The cleanup kills the node, because a graceful stop of 3.10 takes six seconds and the cleanup removes the data
	// anyway.
	t.Cleanup(func() {
		run("kill")
		run("rm")
	})
	o.start()
	return o
}
