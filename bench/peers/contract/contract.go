// Package contract is the part that all peers in Go have in common: the verbs, the environment, and the handler. The README
// describes the contract, which peers in other languages implement too.
package contract

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Config is the environment of a peer.
type Config struct {
	URL         string
	Queue       string
	Concurrency int
	Retries     int           // maximum number of retries, after which a message is parked
	Delay       time.Duration // delay of each retry
}

// Message contains the fields of a payload that the handler reads.
type Message struct {
	ID   int `json:"id"`
	Fail int `json:"fail"` // number of attempts that fail; -1: all
	MS   int `json:"ms"`   // duration of an attempt in milliseconds
}

// Handler handles an attempt. The first attempt has the number 1.
type Handler func(payload []byte, attempt int) error

// Peer implements the verbs. A verb that has no function fails.
type Peer struct {
	// Publish returns a function that stores messages durably, and a function that ends.
	Publish func(context.Context, Config) (store func(payloads [][]byte) error, end func() error, err error)
	// Work handles messages until the context is done.
	Work func(context.Context, Config, Handler) error
	// Replay makes the worker handle all parked messages again.
	Replay func(context.Context, Config) error
}

// Main runs the verb in the arguments.
func Main(p Peer) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := p.run(ctx, os.Args[1]); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (p Peer) run(ctx context.Context, verb string) error {
	c := Config{URL: os.Getenv("PEER_URL"), Queue: os.Getenv("PEER_QUEUE"), Concurrency: number("CONCURRENCY"), Retries: number("RETRIES"), Delay: time.Duration(number("DELAY_MS")) * time.Millisecond}
	switch {
	case verb == "publish":
		return p.publish(ctx, c)
	case verb == "work":
		h, err := handler()
		if err != nil {
			return err
		}
		return p.Work(ctx, c, h)
	case verb == "replay" && p.Replay != nil:
		return p.Replay(ctx, c)
	}
	return fmt.Errorf("verb %q not found", verb)
}

func number(name string) int {
	n, _ := strconv.Atoi(os.Getenv("PEER_" + name))
	return n
}

// maxBatch limits the number of messages that are published together.
const maxBatch = 500

// publish stores the lines of stdin. Lines that arrive together are stored together.
func (p Peer) publish(ctx context.Context, c Config) error {
	store, end, err := p.Publish(ctx, c)
	if err != nil {
		return err
	}
	lines := make(chan []byte, maxBatch)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- append([]byte(nil), in.Bytes()...)
		}
	}()
	for line := range lines {
		batch := [][]byte{line}
		for len(batch) < min(maxBatch, len(lines)) {
			batch = append(batch, <-lines)
		}
		if err := store(batch); err != nil {
			return errors.Join(err, end())
		}
	}
	return end()
}

var errDown = errors.New("payment provider: 503 Service Unavailable")

// handler returns the handler of all peers. It reports each attempt before it returns, so that a killed worker has reported
// all attempts that it began.
func handler() (Handler, error) {
	reports, err := net.Dial("unix", os.Getenv("PEER_REPORTS"))
	if err != nil {
		return nil, err
	}
	healed := os.Getenv("PEER_HEALED") != ""
	var writing sync.Mutex
	return func(payload []byte, attempt int) error {
		var m Message
		if err := json.Unmarshal(payload, &m); err != nil {
			return err
		}
		writing.Lock()
		_, err := fmt.Fprintf(reports, "%d %d %d\n", m.ID, attempt, time.Now().UnixMicro())
		writing.Unlock()
		if err != nil {
			os.Exit(1) // the benchmark ended
		}
		time.Sleep(time.Duration(m.MS) * time.Millisecond)
		if !healed && (m.Fail < 0 || attempt <= m.Fail) {
			return errDown
		}
		return nil
	}, nil
}

// Parallel calls f for each payload, from several goroutines. Peers whose client publishes one message at a time use it.
func Parallel(payloads [][]byte, goroutines int, f func(payload []byte) error) error {
	var group sync.WaitGroup
	errs := make([]error, goroutines)
	for g := range goroutines {
		group.Go(func() {
			for i := g; i < len(payloads) && errs[g] == nil; i += goroutines {
				errs[g] = f(payloads[i])
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
