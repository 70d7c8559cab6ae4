package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/reprisemq/reprise/bench/internal/brokers"
	"github.com/reprisemq/reprise/bench/internal/proc"
)

// bench is the state that scenarios share.
type bench struct {
	*options
	setup   brokers.Setup
	tmp     string
	running map[string]brokers.Broker
}

// prepare builds the programs.
func prepare(ctx context.Context, o *options) (*bench, error) {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return nil, err
	}
	o.root = root
	b := &bench{options: o, running: make(map[string]brokers.Broker)}
	if b.tmp, err = os.MkdirTemp(o.data, "brokerbench-"); err != nil {
		return nil, err
	}
	b.setup = brokers.Setup{
		Root: root, Bin: b.tmp, Binary: o.reprise, Data: b.tmp, Memory: o.memory, Log: os.Stderr, Profiles: o.profiles,
	}
	if err := b.build(ctx); err != nil {
		return nil, errors.Join(err, b.end())
	}
	return b, nil
}

func (b *bench) build(ctx context.Context) error {
	commands := []*exec.Cmd{exec.CommandContext(ctx, "go", "build", "-o", b.tmp, "./cmd/...")}
	commands[0].Dir = filepath.Join(b.root, "bench")
	if b.reprise == "" && slices.Contains(b.brokers, brokers.Reprise) {
		b.setup.Binary = filepath.Join(b.root, "bin/reprise")
		build := exec.CommandContext(ctx, "make", "--silent", "build")
		build.Dir = b.root
		commands = append(commands, build)
	}
	if b.profiles != "" {
		var err error
		if b.setup.Profiles, err = filepath.Abs(b.profiles); err != nil {
			return err
		}
		if err := os.MkdirAll(b.setup.Profiles, 0o755); err != nil {
			return err
		}
	}
	for _, c := range commands {
		c.Stdout, c.Stderr = os.Stderr, os.Stderr
		if err := c.Run(); err != nil {
			return fmt.Errorf("%v: %w", c.Args, err)
		}
	}
	return nil
}

// end stops all brokers and removes their files.
func (b *bench) end() error {
	err := b.stopAll()
	return errors.Join(err, os.RemoveAll(b.tmp))
}

func (b *bench) stopAll() (err error) {
	for _, broker := range b.running {
		err = errors.Join(err, broker.Remove())
	}
	clear(b.running)
	return err
}

// discard stops a broker whose state a failed round may have changed. The next measurement
// starts a new broker.
func (b *bench) discard(kind string) error {
	broker := b.running[kind]
	if broker == nil {
		return nil
	}
	delete(b.running, kind)
	return broker.Remove()
}

// broker returns the running broker of the given kind, or starts an empty broker.
func (b *bench) broker(ctx context.Context, kind string) (brokers.Broker, error) {
	if broker := b.running[kind]; broker != nil {
		return broker, nil
	}
	broker, err := b.setup.New(kind)
	if err != nil {
		return nil, err
	}
	b.running[kind] = broker
	if err := broker.Start(ctx); err != nil {
		return nil, err
	}
	return broker, nil
}

// awaitIdle waits until all brokers are idle.
func (b *bench) awaitIdle(ctx context.Context) error {
	idle, err := proc.AwaitIdle(ctx, b.used)
	if err == nil && !idle {
		err = errors.New("timed out waiting for the brokers to become idle")
	}
	return err
}

func (b *bench) used() (seconds float64, err error) {
	for _, broker := range b.running {
		used, err := proc.CPU(broker.PID())
		if err != nil {
			return 0, err
		}
		seconds += used
	}
	return seconds, nil
}
