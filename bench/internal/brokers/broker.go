// Package brokers starts the brokers that are compared, each as a process of its
// own, and ends them.
package brokers

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/reprisemq/reprise/bench/internal/proc"
)

// Broker is a broker that has been set up.
type Broker interface {
	// Start starts it, with what it had when it was stopped, if it keeps that.
	Start(context.Context) error
	// URL is where it is, while it runs. The next start may be elsewhere.
	URL() string
	// PID is the process whose memory and processor time are its own.
	PID() int
	// Stop ends it in order, Kill at once.
	Stop() error
	Kill() error
	// Remove ends it, if it runs, and forgets what it kept.
	Remove() error
}

// The kinds of brokers.
const (
	Reprise  = "reprise"
	RabbitMQ = "rabbitmq"
	Null     = "null"
)

// Setup is what brokers are made of.
type Setup struct {
	Root   string    // of the repository
	Bin    string    // the folder with nullbroker and profiledbroker
	Binary string    // the command reprise
	Data   string    // a folder for what brokers keep
	Memory bool      // reprise keeps messages in memory only
	Log    io.Writer // where brokers say what goes wrong

	// Profiles is the folder for profiles of reprise, which is then run by
	// profiledbroker. Empty: none are written.
	Profiles string

	number int
}

// New sets up a broker of a kind, with nothing in it.
func (s *Setup) New(kind string) (Broker, error) {
	s.number++
	switch kind {
	case Null:
		return &local{setup: s, command: []string{filepath.Join(s.Bin, "nullbroker")}}, nil
	case RabbitMQ:
		return &rabbit{setup: s, name: fmt.Sprintf("bench%d-%d", os.Getpid(), s.number)}, nil
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

// local is a broker that is a program of ours.
type local struct {
	setup   *Setup
	command []string
	data    string // empty: it keeps nothing
	server  *proc.Server
}

func (b *local) Start(ctx context.Context) (err error) {
	b.server, err = proc.Start(ctx, b.setup.Log, b.command[0], b.command[1:]...)
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
