package presettest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprisemq/reprise"
	"github.com/reprisemq/reprise/internal/preset"
	"github.com/reprisemq/reprise/internal/testkit"
)

// The names of the design are fixed, so one test that is not parallel covers all uses of these names on a shared broker.
func TestWorkRetryDeclaresDeployedTopology(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		for _, tc := range []struct {
			name    string
			p       preset.WorkRetry
			kind    string
			durable bool
			more    amqp.Table
		}{
			{"as published", preset.WorkRetry{}, "direct", true, nil},
			{"fanout, transient", preset.WorkRetry{Kind: "fanout", TransientExchanges: true}, "fanout", false, nil},
			{"classic by name", preset.WorkRetry{}, "direct", true, amqp.Table{"x-queue-type": "classic"}},
			{"quorum", preset.WorkRetry{QueueType: "quorum"}, "direct", true, amqp.Table{
				"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-delivery-limit": int64(2147483647),
			}},
		} {
			for _, ttl := range []any{int32(300000), int64(300000)} {
				for _, first := range []string{"we first", "they first"} {
					t.Run(fmt.Sprintf("%s, %T, %s", tc.name, ttl, first), func(t *testing.T) {
						o := newOther(t, b, "")
						c, err := reprise.Dial(t.Context(), b.URL, nil)
						if err != nil {
							t.Fatal(err)
						}
						defer c.Close(context.WithoutCancel(t.Context()))
						we := func() error { return c.Declare(t.Context(), tc.p.Topology()) }
						they := func() error { return o.declare(tc.kind, "", tc.durable, ttl, tc.more) }
						if first == "they first" {
							we, they = they, we
						}
						if err := errors.Join(we(), they()); err != nil {
							t.Error(err)
						}
						if q, err := o.ch.QueueDeclarePassive("WorkQueue.failed", true, false, false, false, nil); err != nil || q.Messages != 0 {
							t.Errorf("failed queue: got %+v, %v; want an empty queue", q, err)
						}
					})
				}
			}
		}
	})
}

// The worker does not change existing queues with different arguments. The error recommends an action.
func TestWorkRetryRejectsDifferentQueues(t *testing.T) {
	testkit.Each(t, func(t *testing.T, b testkit.Target) {
		o := newOther(t, b, "")
		if err := o.declare("fanout", "", true, int32(60000), nil); err != nil {
			t.Fatal(err)
		}
		c, err := reprise.Dial(t.Context(), b.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(context.WithoutCancel(t.Context()))
		for _, tc := range []struct {
			p    preset.WorkRetry
			want string
		}{
			{preset.WorkRetry{}, `exchange "WorkExchange": already exists with a different type: the broker has 'fanout', the declaration has 'direct'`},
			{preset.WorkRetry{Kind: "fanout"}, `queue "RetryQueue": already exists with a different x-message-ttl: the broker has '60000', the declaration has '300000'`},
		} {
			err := c.Declare(t.Context(), tc.p.Topology())
			if _, ok := errors.AsType[*reprise.DeclareError](err); !ok || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want DeclareError with %s", err, tc.want)
			}
		}
		if err := c.Declare(t.Context(), preset.WorkRetry{Kind: "fanout", RetryDelay: time.Minute}.Topology()); err != nil {
			t.Error(err)
		}
	})
}
