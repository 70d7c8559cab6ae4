package brokers

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// rabbitVersion is the RabbitMQ release that benchmarks compare with.
const rabbitVersion = "4.3"

// rabbitSettings restores two of RabbitMQ's defaults, which scripts/rabbitmq reduces because tests run many brokers.
// The first depends on the memory of the benchmark machine.
var rabbitSettings = []string{
	"vm_memory_high_watermark.absolute = 12GB",
	"raft.wal_max_size_bytes = 536870912",
	fmt.Sprint("max_message_size = ", maxMessageSize),
}

// rabbit is a node of scripts/rabbitmq.
type rabbit struct {
	setup *Setup
	name  string
	made  bool
	runs  bool
	url   string
	pid   int
}

func (b *rabbit) script(ctx context.Context, command string, args ...string) (string, error) {
	args = append([]string{command, rabbitVersion}, args...)
	if command == "status" {
		args = args[:1]
	}
	cmd := exec.CommandContext(ctx, filepath.Join(b.setup.Root, "scripts/rabbitmq"), args...)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("scripts/rabbitmq %s: %w: %s", strings.Join(args, " "), err, problem.String())
	}
	return out.String(), nil
}

// The first call of Start waits until the node is ready. Later calls return when the process has started, so that the
// caller can measure the time until the node is ready.
func (b *rabbit) Start(ctx context.Context) error {
	args := []string{"--name", b.name}
	if !b.made {
		if _, err := b.script(ctx, "install"); err != nil {
			return err
		}
		for _, setting := range rabbitSettings {
			args = append(args, "--set", setting)
		}
	} else {
		args = append(args, "--no-wait")
	}
	b.made = true
	url, err := b.script(ctx, "start", args...)
	if err != nil {
		return err
	}
	b.runs, b.url = true, strings.TrimSpace(url)
	b.pid, err = b.find(ctx)
	return err
}

// find returns the process ID of the node.
func (b *rabbit) find(ctx context.Context) (int, error) {
	status, err := b.script(ctx, "status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(status) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == rabbitVersion && f[1] == b.name {
			return strconv.Atoi(f[2])
		}
	}
	return 0, fmt.Errorf("node %s is not running", b.name)
}

func (b *rabbit) URL() string { return b.url }
func (b *rabbit) PID() int    { return b.pid }

func (b *rabbit) Stop() error {
	b.runs = false
	_, err := b.script(context.Background(), "stop", "--name", b.name)
	return err
}

func (b *rabbit) Kill() error {
	b.runs = false
	_, err := b.script(context.Background(), "kill", "--name", b.name)
	return err
}

func (b *rabbit) Remove() error {
	if !b.made {
		return nil
	}
	if b.runs {
		if err := b.Kill(); err != nil {
			return err
		}
	}
	_, err := b.script(context.Background(), "rm", "--name", b.name)
	return err
}
