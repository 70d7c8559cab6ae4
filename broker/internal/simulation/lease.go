package simulation

import (
	"context"
	"time"

	"github.com/reprisemq/reprise"
)

// leasesName is a design whose worker counts crashes, also of a classic queue.
const leasesName = "leases"

// A worker with a short lease moves most of its messages into its lease queue, some of them immediately.
func init() {
	designs = append(designs, design{Name: leasesName, Copies: true, Marks: true, Build: func(w Work) built {
		b := plain(w, nil, byPolicy(w))
		b.config.Lease = 3 * time.Second
		b.config.Middleware = []reprise.Middleware{func(next reprise.Handler) reprise.Handler {
			return reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
				if len(m.Body)%2 == 0 {
					_ = reprise.SaveCheckpoint(ctx, []byte(m.MessageID)) // fails while the broker is unreachable
				}
				return next.Handle(ctx, m)
			})
		}}
		return b
	}})
}
