// Package reprise processes messages from RabbitMQ so that those which fail
// come back later, never get lost, never block the others, and when they have
// used up their retries are parked where a person finds them.
//
//	client, err := reprise.Dial(ctx, "amqp://guest:guest@localhost/", nil)
//	…
//	worker, err := reprise.NewWorker(client, reprise.WorkerConfig{
//		Queue: "orders",
//		Handler: reprise.HandlerFunc(func(ctx context.Context, m *reprise.Message) error {
//			return charge(ctx, m.Body) // nil: done. An error: comes back later.
//		}),
//	})
//	…
//	err = worker.Run(ctx) // until ctx is cancelled
//
// # The life of a message
//
//	publish ─► work queue ─► handler ─► nil ───────────────► ack
//	                ▲            ├────► error, retries left ─► copy to a wait queue, confirmed ─► ack the original
//	                │            │                                │ expires
//	                └────────────┼────────────────────────────────┘  (back to this queue only, through the default exchange)
//	                             └────► error, none left / Park ─► copy to the failed queue, confirmed ─► ack the original
//
// Words: the handler consumes from the work queue. A wait queue has no
// consumers: messages expire from it, back to work. The failed queue is the
// parking lot. An attempt is one run of the handler, a retry is a later
// attempt. To settle is to acknowledge, retry or park.
//
// Queues, exchanges and headers are chosen by a topology.Strategy; what follows
// holds for all of them.
//
// # What is promised
//
// What follows is the promise of the default, a copy published before the original
// is acknowledged. Other ways to settle a failed message (WorkerConfig.Order, and
// the routes topology.Requeuing and topology.DeadLettering) have other risks:
// docs/guarantees.md says which, as measured by cutting connections everywhere.
//
// Nothing is lost. The order is always: publish the copy, persistent and
// mandatory; wait until the broker has confirmed it and not returned it; then
// acknowledge the original. When anything on the way fails (a nack, a return, the
// publishing connection), the original stays unacknowledged and the copy is
// published again, with growing delays, for as long as the connection lives that
// the original was delivered on. A confirm that is late is waited for. When that is lost, the
// broker delivers the original again. This rests on durable queues that do not
// drop messages by themselves; the default strategy declares such.
//
// Duplicates are possible and recognisable. A consuming connection that is lost
// while its message is being retried leaves both, if the copy is published before
// the worker knows of it or the broker of the acknowledgement, as
// does a copy published again because its confirm was lost. All carry the same
// message id. (A foreign message without one gets a random id at its first
// retry; a duplicate made by that first retry has another.) Package idempotent
// suppresses them. Of what Publish returns, only ErrUnconfirmed and ErrNacked
// leave open whether the message is stored.
//
// An acknowledgement never reaches a message it was not meant for. Delivery
// tags restart at 1 on every channel, so every delivery is bound to the channel
// it came on; after that is gone, settling it does nothing.
//
// A retry returns to the queue that failed and to no other (default strategy),
// even where its exchange fans out.
//
// A message keeps its body, all its properties and all its headers, with their
// types. Three things cannot travel on a copy in their proper place and are
// stashed in headers meanwhile, from where Message shows them: header CC, which
// would route the copy to those keys too; property user-id where it is not the
// connection's own user, since the broker refuses that; property expiration,
// since the copy would expire while it waits. The delivery mode is always
// persistent. RabbitMQ's own headers (x-death and kin, x-delivery-count,
// x-acquired-count) belong to a delivery and are not republished.
//
// The headers of a message must fit into one frame (128 KiB with RabbitMQ's
// defaults), together with what Reprise and the broker add. Where they leave
// little room, the recorded error texts are cut shorter; where a retry does not
// fit, the message is parked instead. Publish refuses what leaves no room.
//
// # What protects what the handler calls
//
// A Breaker stops a worker from consuming while its downstream is down, so that
// messages wait in their queue rather than use up their attempts; PauseFor lets
// a handler do so for as long as the downstream asks; a Limiter bounds how often
// attempts begin. Messages that were fetched and had not begun go back to the
// queue (with RabbitMQ before 4.3, which would count that as a failed delivery,
// they stay with the worker).
//
// A message that ends its process every time never returns an error. Quorum
// queues count such deliveries: from the second one on it is handled alone, and
// at CrashLimit it is parked.
//
// # Concurrency
//
// Settling is pipelined: a handler that failed frees its slot at once, its copy
// awaits the confirm beside it. Acks of neighbouring deliveries are coalesced,
// others are sent at once, so that a slow handler holds back nothing but its
// own.
//
// # Events
//
// The Config's Logger receives, with stable texts and keys:
//
//	connected              connection, broker, generation
//	connection lost        connection, broker, reason, next_try
//	connect failed         connection, broker, reason, next_try
//	channel closed         connection, broker, error, next_try       (publishing)
//	confirms do not come   connection, broker, exchange, routing_key, after (it has a channel of its own from now on)
//	broker does not read   connection, broker, after                 (nor answer: the connection is replaced)
//	publishing blocked     connection, broker, reason                (memory or disk alarm)
//	publishing unblocked   connection, broker
//	consuming              queue, generation, prefetch               (1 while messages are handled one at a time:
//	                                                                  see CrashLimit and Breaker)
//	consumer cancelled     queue, next_try                           (queue deleted or moved, or a message kept too long)
//	consuming interrupted  queue, error, next_try
//	consuming stopped      queue, running, given_back                (by a drain, which waits for running handlers)
//	paused                 queue, for, reason                        (PauseFor, Breaker, or a Limiter that failed)
//	resumed                queue
//	retry                  queue, message_id, attempt, delay, error
//	parked                 queue, message_id, attempt, exchange, routing_key, reason, error
//	consumer timeout is near  queue, message_id, attempt, held, timeout
//	waited too long to begin  queue, given_back, timeout
//	copy failed            queue, message_id, attempt, exchange, routing_key, error, next_try
//	confirm is late        queue, message_id, attempt, exchange, routing_key, after (it is waited for)
//	copy dropped           queue, message_id, attempt, error, reason (the broker delivers the original again)
//	message lost           queue, message_id, attempt, exchange, routing_key, error (AckThenPublish only)
//	message may be lost    queue, message_id, attempt, error, reason (AckThenPublish only)
//	breaker failed         queue, error                              (its code panicked)
//	observer failed        event, error                              (its code panicked)
//	Acked failed           queue, message_id, attempt, error         (its code panicked)
//	given back             queue, message_id, attempt, error         (cut short by a drain)
//	drain timeout          queue, running
//	cannot be handled      queue, message_id, error                  (the Strategy failed; parked as it is)
//	cannot be settled      queue, message_id, attempt, error         (the Strategy or Policy failed, or the headers
//	                                                                  fill the frame; parked as it is)
//	cannot be parked       queue, message_id, attempt, error         (not even so; it stays unacknowledged)
package reprise
