// Demo serves the console of a shop with generated data, or takes pictures of all its pages, light and dark, wide and narrow.
//
//	go run -C internal/tools ./browsertest/demo   # open the URL that it prints
//	make screenshots
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/breaker"
	"github.com/reprisemq/reprise/internal/tools/browsertest"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:15600", "address of the console")
	readme := flag.String("readme", "", "directory to put the pictures of the README into, too")
	pictures := flag.String("pictures", "", "directory to put pictures of all pages into, instead of serving them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *pictures, *readme); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, pictures, readme string) error {
	dir, err := os.MkdirTemp("", "reprise-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if pictures != "" {
		listen = ""
	}
	shop, err := browsertest.Open(ctx, browsertest.ShopConfig{
		Dir: dir, Listen: listen, Attempts: 10, Seeded: true,
		Handlers: map[string]reprise.Handler{"orders": handler(2), "invoices": handler(1), "thumbnails": handler(6), "emails": handler(1)},
		Breakers: map[string]breaker.State{"orders": breaker.Closed, "invoices": breaker.Closed, "thumbnails": breaker.HalfOpen},
	})
	if err != nil {
		return err
	}
	defer shop.Close()
	ctx, cancel := context.WithCancel(ctx)
	var busy sync.WaitGroup
	busy.Go(func() { customers(ctx, shop.Client) })
	defer busy.Wait()
	defer cancel()
	if pictures != "" {
		return takePictures(ctx, shop, pictures, readme)
	}
	fmt.Println(shop.URL)
	<-ctx.Done()
	return nil
}

// handler returns a handler that fails for the given percentage of messages. Failed messages are retried after an hour.
func handler(percent int) reprise.Handler {
	return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
		select {
		case <-time.After(time.Duration(5+rand.IntN(30)) * time.Millisecond):
		case <-ctx.Done():
		}
		if rand.IntN(100) < percent {
			return reprise.RetryAfter(time.Hour, fmt.Errorf("downstream is busy"))
		}
		return nil
	})
}

// customers publishes messages until ctx is done.
func customers(ctx context.Context, c *reprise.Client) {
	for _, q := range []struct {
		key   string
		pause time.Duration
	}{{"orders", 25 * time.Millisecond}, {"invoices", 60 * time.Millisecond}, {"thumbnails", 30 * time.Millisecond}, {"emails", 80 * time.Millisecond}} {
		go func() {
			tick := time.NewTicker(q.pause)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					_ = c.Publish(ctx, &reprise.Message{Exchange: "shop", RoutingKey: q.key + ".created", Body: []byte("{}")})
				}
			}
		}()
	}
	<-ctx.Done()
}
