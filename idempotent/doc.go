// Package idempotent makes the effect of a message happen once, however often
// the message comes.
//
// RabbitMQ and Reprise lose nothing, and the price is that a message may come
// twice: a connection lost between the confirm of a retry copy and the
// acknowledgement of its original leaves both; so does a publisher that hears no
// confirm and publishes again. All of them carry the same message id. A Store
// remembers which ids are done.
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
// # Two ways, two promises
//
// Middleware goes around any handler:
//
//	message ─► Claim ─┬─ claimed ─► handler ─┬─ nil ───► Complete ─► nil
//	                  │                      └─ error, panic ─► Release ─► the error
//	                  ├─ done ──► nil: acknowledged, the handler does not run
//	                  └─ busy ──► comes back when the other's lease is over
//
// No two runs of a handler have the claim for a key at once, and after one has
// succeeded no other begins while the key is remembered. So the effect happens
// once, unless
//
//   - the process dies after the effect and before Complete: the message is
//     delivered again, and the handler runs again when the lease is over;
//   - the store cannot be told for the rest of the lease, or for three seconds after
//     the worker's drain has ended the handler's context, and a duplicate comes;
//   - the handler returns an error, or panics, although its effect has happened;
//   - the store cannot be reached for the rest of the lease, and the handler goes
//     on although its context has ended;
//   - the process is stopped for longer than its lease, with its machine, and goes
//     on;
//   - the duplicate comes after Retention, or the store has lost its memory.
//
// The first is a gap that no order of steps closes, as long as the effect and the
// memory of it are in different places. Where the effect is in an SQL database,
// put both into one transaction: Tx inserts the key and runs the handler within
// the same transaction, so that either both are committed or neither. Then the
// effect happens exactly once while the key is remembered, whatever dies.
//
// # Keys
//
// Two messages with the same key are one: the second is acknowledged and never
// handled. The default key is the message id. It must be unique for each effect
// that is wanted; a publisher that sets it to the number of an order, and
// publishes two events of that order, loses the second. Whoever may publish can
// choose an id, too: do not let strangers publish to such a queue.
//
// A message that its publisher has given no id has no key, and is parked with
// ErrNoKey, or handled without protection: see Config.Keyless. The id that the worker
// assigns for its retries does not count, since a message whose first attempt was cut
// short is given another one.
//
// Keys of different queues are different, since an exchange gives copies of one
// message to several queues, and each has its own work to do: see Config.Scope.
//
// # Busy keys
//
// A message whose key another run has claimed is not acknowledged: that run may
// be in a process that is dead, and the message the only one left. It comes back
// when the other's lease is over, by reprise.RetryAfter with ErrBusy. If the other
// lives, it has extended its lease by then, and the message waits for twice as long
// as before, and so on up to an hour; how often stands in the header HeaderBusy.
//
// Each time counts as an attempt. With ten of them and a lease of a minute, a
// duplicate waits for more than three hours. One that has waited in vain is parked:
// nothing is lost by that, but somebody has to look at it. If your handlers run for
// longer, set a longer Lease, or a rule in the worker's Policy:
//
//	Rules: []reprise.Rule{{Match: reprise.Is(idempotent.ErrBusy), MaxAttempts: 100}}
//
// # A store that fails
//
// If the store cannot be asked, the handler does not run, and the message comes
// back by the worker's Policy; the error is a *StoreError. Such attempts count as
// well: give a Breaker to the worker, or a rule that matches
// reprise.As[*idempotent.StoreError]() and allows more of them.
//
// If the handler has succeeded and the store cannot be told, that is tried again
// until the lease is over; for three seconds once the handler's context has ended,
// as at the end of a drain, which does not wait for longer. Then the message is
// acknowledged nevertheless: to hand it out again would repeat the effect for
// certain, to forget it does so only if there is a duplicate.
//
// # Events
//
// Config.Logger receives, with stable texts and keys, each with queue and
// message_id:
//
//	no key                               (Warn: handled without protection, see HandleKeyless)
//	duplicate        key                 (Info: acknowledged without running the handler)
//	busy             key, left, delay    (Info: left until the other's lease is over; comes back after delay)
//	claim lost       key, reason         (Warn: the handler's context has ended)
//	not released     key, error          (Warn: the key is busy until the lease is over)
//	not remembered   key, error          (Error: the effect has happened, a duplicate would repeat it)
package idempotent
