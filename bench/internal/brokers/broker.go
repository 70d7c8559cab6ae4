// Package brokers starts and stops the brokers that benchmarks compare. Each broker runs in a separate process.
package brokers

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/reprisemq/reprise/bench/internal/proc"
)

// Broker is a broker that can be started and stopped repeatedly.
type Broker interface {
	// Start starts the broker. After a restart, a durable broker still has its messages.
	Start(context.Context) error
	// URL returns the URL of the running broker. The URL may change at the next start.
	URL() string
	// PID returns the process ID of the broker.
	PID() int
	// Stop shuts the broker down gracefully. Kill stops its process immediately.
	Stop() error
	Kill() error
	// Remove stops the broker, if it is running, and removes its files.
	Remove() error
}

// The kinds of brokers.
const (
	Reprise  = "reprise"
	RabbitMQ = "rabbitmq"
	LavinMQ  = "lavinmq"
	Null     = "null"
)

// maxMessageSize allows bodies of 100 MB.
const maxMessageSize = 128 << 20

// Setup contains the settings that all brokers share.
type Setup struct {
	Root   string    // root folder of the repository
	Bin    string    // folder with the programs nullbroker and profiledbroker
	Binary string    // path of the command reprise
	Data   string    // folder for the data of brokers
	Memory bool      // broker reprise keeps its messages in memory only
	Log    io.Writer // destination of the log output of brokers

	// Profiles is the folder for profiles of the embedded broker. If it is set, the broker runs in profiledbroker.
	// Default: no profiles.
	Profiles string

	number int
}

// New returns a new, empty broker of the given kind. Call Start to start it.
func (s *Setup) New(kind string) (Broker, error) {
	s.number++
	switch kind {
	case Null:
		return &local{setup: s, command: []string{filepath.Join(s.Bin, "nullbroker")}}, nil
	case RabbitMQ:
		return &rabbit{setup: s, name: fmt.Sprintf("bench%d-%d", os.Getpid(), s.number)}, nil
	case LavinMQ:
		return s.lavinmq()
	case Reprise:
		return s.reprise()
	}
	return nil, fmt.Errorf("broker %q not found", kind)
}

func (s *Setup) reprise() (Broker, error) {
	b := &local{setup: s, command: []string{s.Binary, "broker", "--listen", "127.0.0.1:0", "--log-level", "error"}}
	if s.Profiles != "" {
		b.command = []string{filepath.Join(s.Bin, "profiledbroker"), "-listen", "127.0.0.1:0"}
		for _, kind := range []string{"cpu", "mem", "mutex"} {
			b.command = append(b.command, "-"+kind+"profile",
				filepath.Join(s.Profiles, fmt.Sprintf("%d.%s.prof", s.number, kind)))
		}
	}
	if s.Profiles == "" {
		b.command = append(b.command, fmt.Sprint("--max-message-size=", maxMessageSize))
	}
	if s.Memory {
		if s.Profiles == "" {
			b.command = append(b.command, "--memory")
		}
		return b, nil
	}
	var err error
	if b.data, err = os.MkdirTemp(s.Data, "reprise-"); err != nil {
		return nil, err
	}
	b.command = append(b.command, "--data", b.data)
	return b, nil
}

// local is a broker that is a program.
type local struct {
	setup   *Setup
	url     string // default: the program prints its URL
	command []string
	data    string // directory of a durable broker
	server  *proc.Server
}

func (b *local) Start(ctx context.Context) (err error) {
	if b.url != "" {
		b.server, err = proc.StartAt(ctx, b.setup.Log, b.url, b.command[0], b.command[1:]...)
	} else {
		b.server, err = proc.Start(ctx, b.setup.Log, b.command[0], b.command[1:]...)
	}
	return err
}

func (b *local) URL() string { return b.server.URL }
func (b *local) PID() int    { return b.server.PID() }

func (b *local) Stop() error {
	server := b.server
	b.server = nil
	return server.Stop()
}

func (b *local) Kill() error {
	b.server.Kill()
	b.server = nil
	return nil
}

func (b *local) Remove() (err error) {
	if b.server != nil {
		err = b.Stop()
	}
	if b.data != "" {
		_ = os.RemoveAll(b.data)
	}
	return err
}
