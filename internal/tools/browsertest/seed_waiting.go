package browsertest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/reprisemq/reprise/internal/archive/store"
	"github.com/reprisemq/reprise/internal/protocol"
	"github.com/reprisemq/reprise/internal/testhook"
)

// seedWaiting archives reports of workers about messages that wait for a retry.
func seedWaiting(ctx context.Context, a *store.Archive, now time.Time) error {
	for _, w := range []struct {
		queue, text string
		n           int
	}{
		{"orders", "HTTP 503 from payments: order %d was not charged", 60},
		{"orders", "<b>no customer</b> %d\u202ereversed", 3},
		{"invoices", "dial tcp 10.0.0.%d:5432: connect: connection refused", 17},
		{"invoices.of.a.team.with.a.long.name", "render page %d", 2},
		{"invoices", strings.Repeat("0123456789abcdef", 12) + " %d", 1},
	} {
		r := protocol.RetryReport{Queue: w.queue, Host: "web-1"}
		for i := range w.n {
			r.Retries = append(r.Retries, protocol.Retry{
				MessageID: fmt.Sprintf("%s-%d-%d", w.queue, w.n, i), Wait: w.queue + ".wait.7200000-9000000", Attempt: i%7 + 1,
				Failed: now.Add(-time.Minute), Due: now.Add(time.Duration(i*5-3) * time.Minute), Error: fmt.Sprintf(w.text, i),
			})
		}
		body, err := r.Encode()
		if err == nil {
			err = testhook.Retried(ctx, a, body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
