// Package reprise processes messages from RabbitMQ. A message that fails is retried later and does not block others.
// When its retries are exhausted, it is parked in the failed queue, a dead-letter queue.
//
//	client, err := reprise.Dial(ctx, "amqp://guest:guest@localhost", nil)
//	…
//	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
//		Queue: "orders",
//		Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Delivery) error {
//			return charge(ctx, m.Body) // nil: acknowledged. An error: retried later.
//		}),
//	})
//	…
//	err = worker.Run(ctx) // until ctx is canceled
//
//	publish ─► work queue ─► handler ─► nil ───────────────► ack
//	                ▲            ├────► error, retries left ─► copy to a wait queue, confirmed ─► ack the original
//	                │            │                                │ expires
//	                └────────────┼────────────────────────────────┘  (back to this queue only)
//	                             └────► error, none left / Park ─► copy to the failed queue, confirmed ─► ack the original
//
// By default the package guarantees:
//
//   - no message is lost, because a copy is published and confirmed before the original is acknowledged
//   - a duplicate has the same message ID as the original
//   - an acknowledgement never reaches a different message
//   - a retry returns only to the queue that delivered the message
//   - a message keeps its body, its properties and its headers
//
// Other ways to settle a failed message have other risks: see WorkerConfig.Order and the routes of package topology.
// https://github.com/reprisemq/reprise/blob/main/docs/guarantees.md lists all guarantees. docs/observability.md lists the
// events that the Logger of a Config receives.
//
// Besides the standard library and packages of this module, the package depends only on amqp091-go (through
// internal/amqpconn).
package reprise
