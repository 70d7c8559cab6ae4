package browsertest

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/outbox"
)

// seedOutbox returns an outbox with messages that leave in the next days. No process publishes them.
func seedOutbox(ctx context.Context, db *sql.DB) (*outbox.Box, error) {
	box, err := outbox.Open(ctx, db, outbox.Config{Dialect: outbox.SQLite})
	if err != nil {
		return nil, err
	}
	for i, queue := range []string{"orders", "orders", "invoices", "thumbnails"} {
		m := reprise.Message{RoutingKey: queue, ContentType: "application/json", Body: fmt.Appendf(nil, `{"order": %d}`, i+4711), Headers: map[string]any{"tenant": "acme"}}
		if err := box.Schedule(ctx, &outbox.Message{Message: m, In: time.Duration(i*i+1) * time.Hour, Key: fmt.Sprintf("customer-%d", i)}); err != nil {
			return nil, err
		}
	}
	return box, nil
}
