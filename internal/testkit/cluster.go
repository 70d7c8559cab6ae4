package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A Cluster is a cluster of three nodes of the latest RabbitMQ, or a single node, for one test. The test may kill nodes.
type Cluster struct {
	// Nodes contains the names of the nodes. URLs contains their addresses.
	Nodes, URLs []string

	t *testing.T
}

var clusterVersion = testedVersions()[len(testedVersions())-1]

// WithCluster runs test with a new cluster, which takes about 15 s to start. `make test` sets the prefix of the node
// names. If the prefix is empty or not set, WithCluster does not run test. WithCluster removes the nodes after the
// test, even if the test fails.
func WithCluster(t *testing.T, test func(t *testing.T, c *Cluster)) {
	t.Helper()
	withNodes(t, 3, test)
}

// WithNode is like WithCluster with a single node.
func WithNode(t *testing.T, test func(t *testing.T, c *Cluster)) {
	t.Helper()
	withNodes(t, 1, test)
}

func withNodes(t *testing.T, n int, test func(t *testing.T, c *Cluster)) {
	t.Helper()
	prefix, known := os.LookupEnv("REPRISE_TEST_CLUSTER_" + digits(clusterVersion))
	switch {
	case known && prefix == "":
		t.Logf("no RabbitMQ %s was started by scripts/test", clusterVersion)
		return
	case !known:
		t.Skipf("needs RabbitMQ %s nodes (run make test)", clusterVersion)
	}
	c := &Cluster{t: t}
	for i := range n {
		c.Nodes = append(c.Nodes, fmt.Sprint(prefix, i+1))
	}
	t.Cleanup(func() {
		for _, node := range c.Nodes { // in any order, because all nodes are removed
			_, _ = c.script("kill", clusterVersion, "--name", node) // the node may not be running
			_, _ = c.script("rm", clusterVersion, "--name", node)
		}
	})
	c.URLs = strings.Fields(c.run("cluster", clusterVersion, prefix, fmt.Sprint(len(c.Nodes))))
	if len(c.URLs) != len(c.Nodes) {
		t.Fatalf("scripts/rabbitmq cluster: got URLs %v, want %d nodes", c.URLs, len(c.Nodes))
	}
	test(t, c)
}

// URL returns an AMQP URL that lists all nodes.
func (c *Cluster) URL() string {
	hosts := make([]string, len(c.URLs))
	for i, u := range c.URLs {
		hosts[i] = strings.TrimSuffix(u[strings.LastIndex(u, "@")+1:], "/")
	}
	return "amqp://guest:guest@" + strings.Join(hosts, ",") + "/"
}

// Kill terminates a node without a graceful shutdown.
func (c *Cluster) Kill(node string) {
	c.t.Helper()
	c.run("kill", clusterVersion, "--name", node)
}

// Start restarts a killed node with its data.
func (c *Cluster) Start(node string) {
	c.t.Helper()
	c.run("start", clusterVersion, "--name", node)
}

// Leader returns the leader of a quorum queue as reported by the node seenBy, or "" if the queue has no leader.
func (c *Cluster) Leader(queue, seenBy string) string {
	c.t.Helper()
	table := c.run("ctl", clusterVersion, "--name", seenBy, "--quiet", "list_queues", "--no-table-headers", "name", "leader")
	for line := range strings.Lines(table) {
		if name, leader, _ := strings.Cut(strings.TrimSpace(line), "\t"); name == queue {
			return strings.TrimSuffix(leader, "@localhost")
		}
	}
	return ""
}

func (c *Cluster) run(args ...string) string {
	c.t.Helper()
	answer, err := c.script(args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer
}

func (c *Cluster) script(args ...string) (string, error) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/reprisemq/reprise").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the module of scripts/rabbitmq: %w", err)
	}
	cmd := exec.Command(filepath.Join(strings.TrimSpace(string(root)), "scripts/rabbitmq"), args...)
	var log strings.Builder
	cmd.Stderr = &log
	answer, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, log.String())
	}
	return strings.TrimSpace(string(answer)), nil
}
