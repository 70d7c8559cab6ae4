package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/reprisemq/reprise/bench/internal/brokers"
)

// peer is a contender.
type peer struct {
	name    string
	store   string // kind
	command []string

	// replay returns the command that replays the parked messages of a queue. Default: none, because the peer cannot replay.
	replay func(p *peer, s settings, log io.Writer) *exec.Cmd

	single bool // each process handles one message at a time, so the worker has a process for each handler
	// divisor reduces the number of failures of a peer whose handlers wait for the retry, so that a step does not take minutes.
	divisor int
	timeout time.Duration // of a step without progress, if the peer does not find the messages of a killed worker within the constant timeout
	install func(root string) error
}

func replayVerb(p *peer, s settings, log io.Writer) *exec.Cmd { return command(p, s, log, "replay") }

// peers returns all peers.
func peers(o options) []*peer {
	program := func(name string) []string { return []string{filepath.Join(o.bin, name)} }
	redrive := func(_ *peer, s settings, log io.Writer) *exec.Cmd {
		p := &peer{command: []string{o.reprise}}
		return command(p, s, log, "redrive", "--from", s.queue+".failed", "--url", s.url, "--yes")
	}
	source := func(name string) string { return filepath.Join(o.root, "bench/peers", name) }
	node := func(name string) []string { return []string{"node", source("node/" + name)} }
	return []*peer{
		{name: "reprise", store: rabbitMQ, command: program("reprise"), replay: redrive},
		{name: "reprise-embedded", store: embedded, command: program("reprise"), replay: redrive},
		{name: "loop", store: rabbitMQ, command: program("loop"), replay: replayVerb},
		{name: "reprise-lavinmq", store: lavinMQ, command: program("reprise"), replay: redrive, install: lavinmq},
		{name: "loop-lavinmq", store: lavinMQ, command: program("loop"), replay: replayVerb, install: lavinmq},
		{name: "rascal", store: rabbitMQ, command: node("rascal.js"), install: npm},
		{name: "watermill", store: rabbitMQ, command: program("watermill"), replay: replayVerb, divisor: 20},
		{name: "celery", store: rabbitMQ, command: []string{"/usr/bin/python3", "-W", "ignore", source("celery/peer.py")}, install: debian("python3-celery")},
		{name: "symfony", store: rabbitMQ, command: []string{"php", source("symfony/peer.php")}, replay: replayVerb, single: true, install: debian("php-cli", "php-amqp", "php-symfony-amqp-messenger", "php-symfony-event-dispatcher")},
		{name: "bullmq", store: redis, command: node("bullmq.js"), replay: replayVerb, install: npm},
		{name: "asynq", store: redis, command: program("asynq"), replay: replayVerb},
		{name: "river", store: postgres, command: program("river"), replay: replayVerb, timeout: 10 * time.Second},
	}
}

// find returns the peer with the given name, or nil.
func find(all []*peer, name string) *peer {
	for _, p := range all {
		if p.name == name {
			return p
		}
	}
	return nil
}

// npm installs the packages of package-lock.json, unless they are installed.
func npm(root string) error {
	dir := filepath.Join(root, "bench/peers/node")
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return err
	}
	marker := filepath.Join(dir, "node_modules/.installed")
	if installed, err := os.ReadFile(marker); err == nil && bytes.Equal(installed, lock) {
		return nil
	}
	cmd := exec.Command("npm", "ci", "--silent")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w: %s", err, out)
	}
	return os.WriteFile(marker, lock, 0o644)
}

// lavinmq checks that LavinMQ is installed.
func lavinmq(string) error {
	_, err := brokers.Program(brokers.LavinMQ)
	return err
}

// debian checks that packages of Debian are installed.
func debian(packages ...string) func(string) error {
	return func(string) error {
		if out, err := exec.Command("dpkg", append([]string{"-s"}, packages...)...).CombinedOutput(); err != nil {
			return fmt.Errorf("not installed: apt-get install %s: %w: %s", strings.Join(packages, " "), err, out)
		}
		return nil
	}
}
