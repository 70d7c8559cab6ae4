// Command nullbroker runs a broker that stores no messages and routes only by queue name. Its message rate is an
// upper limit for real brokers. It prints its URL, and runs until SIGINT or SIGTERM.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/reprisemq/reprise/bench/internal/nullbroker"
)

func main() {
	address := flag.String("listen", "127.0.0.1:0", "address to listen on")
	flag.Parse()
	if err := run(*address); err != nil {
		fmt.Fprintln(os.Stderr, "nullbroker:", err)
		os.Exit(1)
	}
}

func run(address string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	fmt.Printf("amqp://guest:guest@%s\n", l.Addr())
	server := nullbroker.New()
	defer server.Close()
	return server.Serve(l)
}
