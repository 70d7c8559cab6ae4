package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
	"github.com/reprisemq/reprise/topology"
)

// within is the maximum wait for each expected event.
const within = 5 * time.Minute

// designs lists the four published designs. A program in Python, a program in JavaScript and the example consume from
// the same queues at the same time. The programs in Python and JavaScript also publish messages, which fail in up to
// three attempts.
var designs = []struct {
	name     string
	lock     string // for testkit.Alone
	delay    int    // ms
	flags    []string
	topology topology.Topology
	shared   string    // an exchange that other tests use
	queues   []string  // work queues
	to       [2]string // exchange and routing key to publish to
	// exact reports whether all programs agree on the number of each attempt with the given version of RabbitMQ.
	// Default: always.
	exact func(version string) bool
}{
	{
		name: "coverart", lock: "cover-art-archive", delay: 100,
		flags:    []string{"-grace", "10ms", "-retry-delay", "100ms"},
		topology: preset.CoverArt{}.Topology(),
		queues:   []string{"cover-art-archive.index", "cover-art-archive.delete", "cover-art-archive.move"},
		to:       [2]string{"cover-art-archive", "index"},
	},
	{
		name: "staking", lock: "active_staking_queue", delay: 100,
		flags:    []string{"-delay", "100ms", "-retries", "5", "-queues", "active_staking_queue,unbonding_staking_queue"},
		topology: preset.Staking{Queues: []string{"active_staking_queue", "unbonding_staking_queue"}}.Topology(),
		queues:   []string{"active_staking_queue", "unbonding_staking_queue"},
		to:       [2]string{"", "active_staking_queue"},
		shared:   preset.StakingExchange,
	},
	{
		name: "workretry", lock: "WorkQueue", delay: 100,
		flags:    []string{"-delay", "100ms", "-max-attempts", "5"},
		topology: preset.WorkRetry{}.Topology(),
		queues:   []string{"WorkQueue"},
		to:       [2]string{"WorkExchange", ""},
	},
	{
		name: "cdnpurge", lock: "cdn-purge", delay: 30,
		flags:    []string{"-first", "30ms", "-max-attempts", "4"},
		topology: preset.CDNPurge{}.Topology(),
		queues:   []string{"cdn-purge"},
		to:       [2]string{"cdn-purge", "tag"},
		// If a program copies x-death, RabbitMQ 3.10 keeps the first expiration, so the counts differ (see
		// docs/interop.md).
		exact: func(version string) bool { return version != "3.10" },
	},
}

func TestForeignProgramsShareQueues(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("skipped with -short (builds the examples and starts other programs)")
	}
	needPython(t)
	needNode(t)
	for _, d := range designs {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel() // the test mostly waits for programs
			example := filepath.Join(t.TempDir(), d.name)
			command(t, "go", "build", "-C", "../../examples", "-o", example, "./"+d.name)
			testkit.Each(t, func(t *testing.T, b testkit.Target) {
				testkit.Alone(t, b, d.lock)
				for _, first := range []string{"example", "python"} {
					t.Run(first+" first", func(t *testing.T) {
						r := newRecorder(t, b, d.topology, d.shared)
						url := strings.TrimSuffix(b.URL, "/")
						starts := map[string]func() *program{
							"example": func() *program {
								return r.start("example", example, append([]string{"-serve", "-url", b.URL}, d.flags...)...)
							},
							"python": func() *program {
								return r.start("python", python, filepath.Join("python", "foreign.py"), d.name, url, strconv.Itoa(d.delay))
							},
							"node": func() *program {
								return r.start("node", "node", filepath.Join("node", "foreign.js"), d.name, b.URL, strconv.Itoa(d.delay))
							},
						}
						running := map[string]*program{first: starts[first]()}
						r.awaitConsumers(d.queues, 1)
						for name, start := range starts {
							if running[name] == nil {
								running[name] = start()
							}
						}
						r.awaitConsumers(d.queues, 3)

						for _, name := range []string{"python", "node"} {
							fmt.Fprintln(running[name].stdin, "publish 12")
						}
						poison := r.publish(d.to[0], d.to[1])
						r.awaitEnded(24)
						// In three designs, these programs would retry the poison message indefinitely.
						for _, name := range []string{"python", "node"} {
							running[name].end(running[name].stdin.Close)
						}
						r.awaitEnded(25)
						running["example"].end(func() error { return running["example"].cmd.Process.Signal(os.Interrupt) })

						r.checkResults(poison, d.exact == nil || d.exact(b.Version))
						r.checkRemaining(d.topology, poison)
					})
				}
			})
		})
	}
}

func needPython(t *testing.T) {
	t.Helper()
	if exec.Command(python, "-c", "import pika").Run() != nil {
		t.Skip("pika not found (run apt-get install python3-pika, or make test)")
	}
}

func needNode(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("Node.js not found (run apt-get install nodejs npm, or make test)")
	}
	if _, err := os.Stat(filepath.Join("node", "node_modules", "amqplib")); err != nil {
		t.Skip("npm package amqplib not found (run npm ci in internal/interop/node, or make test)")
	}
}
