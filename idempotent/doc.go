// Package idempotent makes the effect of a message happen once, however often the message
// comes. A message may come twice: a connection that is lost between the confirm of a retry copy
// and the acknowledgement of its original leaves both, and so does a publisher that hears no
// confirm and publishes again. All copies carry the same message id. A Store remembers which ids
// are done.
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
// There are two promises. Middleware goes around any handler:
//
//	message ─► Claim ─┬─ claimed ─► handler ─┬─ nil ───► Complete ─► nil
//	                  │                      └─ error, panic ─► Release ─► the error
//	                  ├─ done ──► nil: acknowledged, the handler does not run
//	                  └─ busy ──► comes back when the other's lease is over
//
// The effect happens once while the key is remembered, unless the process dies after the effect
// and before Complete, the handler fails although its effect has happened, or the store or the
// process is out of reach for the rest of the lease. Tx and TxJSON close that gap for an effect
// in an SQL database: the key and the effect are one transaction.
//
// Two messages with the same key are one: the second is acknowledged and never handled. The
// default key is the message id within the work queue (Config.Key, Scope, Keyless).
//
// docs/duplicates.md specifies all cases, what a busy key and a store that fails cost, and how
// long to remember. The package imports the worker library and internal/sqlkit; the driver of a
// database is the program's affair.
package idempotent
