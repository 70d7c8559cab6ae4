// Command profiledbroker runs the embedded broker and profiles it. When it exits, it writes CPU, memory and mutex
// profiles to files.
//
//	profiledbroker -cpuprofile cpu.prof -memprofile mem.prof -mutexprofile mutex.prof
//
// It prints its URL, as `reprise broker` does, and runs until SIGINT or SIGTERM. SIGUSR1 restarts the CPU profile, to
// exclude the warm-up.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/reprisemq/reprise/bench/internal/profiles"
	"github.com/reprisemq/reprise/broker"
	"github.com/reprisemq/reprise/broker/disk"
)

func main() {
	var p profiles.Files
	address := flag.String("listen", "127.0.0.1:0", "address to listen on")
	data := flag.String("data", "", "data directory (default: in memory)")
	p.Flags(flag.CommandLine)
	flag.Parse()
	if err := run(*address, *data, &p); err != nil {
		fmt.Fprintln(os.Stderr, "profiledbroker:", err)
		os.Exit(1)
	}
}

func run(address, data string, p *profiles.Files) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGUSR1)
	if err := p.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	var config broker.Config
	if data != "" {
		config.Store = disk.Dir(data)
	}
	b, err := broker.New(config)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- b.Serve(l) }()
	fmt.Printf("amqp://guest:guest@%s\n", l.Addr())
	for {
		select {
		case <-again:
			if err := p.Restart(); err != nil {
				return err
			}
		case err := <-served:
			return err
		case <-ctx.Done():
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = b.Shutdown(ctx) // after the timeout, Shutdown closes the remaining connections
			<-served
			return nil
		}
	}
}
