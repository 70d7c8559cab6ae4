package browsertest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/backoff"
	"github.com/reprisemq/reprise/internal/archive/fleet"
	"github.com/reprisemq/reprise/internal/protocol"
)

// keyedQueue is a queue whose worker keeps the order of keys.
const keyedQueue = "payments"

// blockKeys starts a worker that keeps the order of keys, and returns when the console lists its blocked keys.
func (s *Shop) blockKeys(ctx context.Context) error {
	const partitions = 4
	cfg := reprise.WorkerConfig{
		Queue: keyedQueue, OrderBy: &reprise.Keyed{Partitions: partitions}, Policy: reprise.Policy{Backoff: backoff.Fixed(4 * time.Hour)},
		Handler: reprise.HandlerFunc(func(_ context.Context, m *reprise.Delivery) error { return fmt.Errorf("%s", m.Body) }),
	}
	w, err := reprise.NewWorker(s.Client, cfg)
	if err != nil {
		return err
	}
	if err := s.Client.Declare(ctx, cfg.OrderBy.Route().Topology(keyedQueue)); err != nil {
		return err
	}
	for _, k := range []struct {
		key, text string
		n         int
	}{
		{"customer-17", "HTTP 503 from bank.example: payment was not accepted, because the account is being moved to another branch", 5},
		{"customer-1042", "dial tcp 10.0.0.7:443: connect: connection refused", 1},
		{"<b>Büro</b> \u202ereversed", "<script>alert(1)</script>", 2},
		{strings.Repeat("0123456789abcdef", 12), strings.Repeat("unbroken", 20), 2},
		{"", "header customer is missing", 1},
	} {
		for range k.n {
			if err := s.Client.PublishKeyed(ctx, keyedQueue, partitions, k.key, &reprise.Message{Body: []byte(k.text)}); err != nil {
				return err
			}
		}
	}
	s.run(w.Run)
	for {
		_ = fleet.Control(ctx, s.Client, protocol.Command{Do: protocol.DoReport, Queue: keyedQueue})
		page, err := s.get(ctx, "/workers")
		if err != nil || strings.Contains(page, "5 blocked keys") && strings.Contains(page, "6 messages behind") {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// get returns a page of the console.
func (s *Shop) get(ctx context.Context, path string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("page %s: %s", path, res.Status)
	}
	return string(page), err
}
