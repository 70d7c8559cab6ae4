package reprise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprisemq/reprise/backoff"
)

// The client tries all addresses before the first delay. The delays grow with each round.
func TestDialTriesAddressesInRounds(t *testing.T) {
	for _, hosts := range []int{1, 2, 3} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				url := "amqp://h1,h2,h3"[:len("amqp://")+3*hosts-1]
				began := time.Now()
				var at []time.Duration
				var addrs []string
				_, err := Dial(ctx, url, &Config{
					Reconnect: backoff.Exponential{Initial: time.Second, Max: time.Hour},
					Dial: func(_ context.Context, _, addr string) (net.Conn, error) {
						at = append(at, time.Since(began))
						addrs = append(addrs, addr)
						if len(at) == 3*hosts {
							cancel()
						}
						return nil, errors.New("host is down")
					},
				})
				var want []time.Duration
				for _, round := range []time.Duration{0, 1, 3} {
					want = append(want, slices.Repeat([]time.Duration{round * time.Second}, hosts)...)
				}
				if !slices.Equal(at, want) {
					t.Errorf("times of attempts: got %v, want %v", at, want)
				}
				for round := range slices.Chunk(addrs, hosts) {
					if slices.Sort(round); len(slices.Compact(round)) != hosts {
						t.Errorf("addresses of each round must be distinct: got %v", addrs)
					}
				}
				last := addrs[len(addrs)-1]
				if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "host is down") || !strings.Contains(err.Error(), "h1:5672") || !strings.Contains(err.Error(), last) {
					t.Errorf("error must be context.Canceled with the cause, h1:5672 and %s: got %v", last, err)
				}
			})
		})
	}
}
