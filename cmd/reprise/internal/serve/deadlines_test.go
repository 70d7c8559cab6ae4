package serve

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Long requests succeed if they make progress, but a client cannot hold a connection by sending single bytes.
func TestProgressDeadlines(t *testing.T) {
	for name, test := range map[string]struct {
		part  int // bytes
		pause time.Duration
		whole bool
	}{
		"single bytes":    {1, 30 * time.Second, false},
		"slow and steady": {64 << 10, 50 * time.Second, true},
		"long pause":      {1 << 10, 2 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const parts = 30
				got := make(chan error, 1)
				l := make(pipes)
				s := Web("x", l, ProgressDeadlines(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, err := io.Copy(io.Discard, r.Body)
					got <- err
				})), slog.New(slog.DiscardHandler))
				defer s.Stop()
				client, server := net.Pipe()
				var sending sync.WaitGroup
				defer sending.Wait()
				defer client.Close()
				l <- server
				sending.Go(func() {
					fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", parts*test.part)
					for range parts {
						time.Sleep(test.pause)
						if _, err := client.Write(make([]byte, test.part)); err != nil {
							return
						}
					}
					_, _ = io.Copy(io.Discard, client)
				})
				if err := <-got; (err == nil) != test.whole {
					t.Errorf("body: got error %v", err)
				}
			})
		})
	}
}
