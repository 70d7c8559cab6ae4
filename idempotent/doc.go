// Package idempotent makes the effect of a message happen once, even if the message is delivered or published more than
// once. For example, a connection that fails between the confirm of a retry copy and the acknowledgement of its
// original leaves both messages in the broker. A publisher that misses a confirm and publishes again creates a
// duplicate, too. All copies of a message have the same message id. A Store remembers the ids of processed messages.
//
//	store := new(idempotent.Memory) // or idempotent.OpenSQL(ctx, db, …), shared by all workers
//	once, err := idempotent.Middleware(store, idempotent.Config{})
//	…
//	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
//		Queue:      "orders",
//		Handler:    reprise.HandlerFunc(charge),
//		Middleware: []reprise.Middleware{once},
//	})
//
// The package offers two approaches with different guarantees. Middleware wraps any handler:
//
//	message ─► Claim ─┬─ claimed ─► handler ─┬─ nil ───► Complete ─► nil
//	                  │                      └─ error, panic ─► Release ─► the error
//	                  ├─ done ──► nil: acknowledged, the handler does not run
//	                  └─ busy ──► retried when the lease of the other run ends
//
// While the store remembers the key, the effect happens once, except in these cases:
//
//   - The process crashes after the effect and before Complete.
//   - The handler returns an error or panics although its effect has happened.
//   - The process is suspended, or cannot reach the store, for the rest of the lease.
//
// Tx and TxJSON avoid these cases for an effect in an SQL database, because the key and the effect share one
// transaction.
//
// Two messages with the same key count as one. After the first message has been processed, the second is acknowledged
// without running the handler. The default key is the message id within the work queue (Config.Key, Scope, Keyless).
//
// docs/duplicates.md specifies all cases, the cost of a busy key and of a failing store, and how to choose the
// retention. The package imports the worker library, internal/amqpvalue and internal/sqlkit. The program provides the
// database driver.
package idempotent
