// Package reprisetest tests handlers, policies and topologies in the process of
// the test, on a broker of its own, where four hours of back-off take no time.
//
//	func TestCharge(t *testing.T) {
//		reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
//			w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: charge})
//			b.Publish(t, &reprise.Message{RoutingKey: "orders", Body: order})
//			b.Drain(t) // until nothing is left to do
//			w.Attempts().Delays() // how long each retry waited
//			b.Parked(t, "orders") // what was given up, and why
//		})
//	}
//
// The broker is package broker's, which does as RabbitMQ does; the worker is the
// one that runs in production. Nothing is mocked but time.
//
// # Time
//
// [Run] calls the test in a bubble of testing/synctest: the clock stands still
// while anybody does anything, and jumps to the next event when all wait. A test
// that waits four hours is over at once, and what it measures is exact. All
// tests may run in parallel: each has a broker and a clock of its own.
//
// In a bubble there is no real network. A program that is a process of its own,
// or a client in another language, wants a broker that listens: [Listen], with
// the same helpers, in real time. [New] is for a bubble that the test has made
// itself, and for benchmarks.
//
// # What counts as left to do
//
// [Broker.Drain] waits until no message in any virtual host is under way. Under
// way is a message that
//
//   - is with a consumer, unsettled, or with a handler of a worker whose client
//     came from [Broker.Client], or on the way from there as a copy;
//   - is ready in a queue that is consumed from. A queue stays one until all
//     connections that consumed from it have been closed in order: a worker that
//     pauses, or has lost its connection, comes back. [Worker.Stop] ends it at
//     once;
//   - waits in a queue that dead-letters what expires, be it a queue by design or
//     one that nobody consumes from, but for those named *.failed;
//   - waits for a delayed retry of a quorum queue, or has been dead-lettered and
//     has not arrived.
//
// All others are at rest: in a failed queue, in a queue without consumers that
// nothing leads out of, such as one that another program consumes in production,
// or a work queue for which the test runs no worker. So is what was delivered to
// a consumer that need not acknowledge.
//
// What is still to be published does not count: a publisher that is blocked, a
// timer of the handler's own. A message that is scheduled does, from the moment it
// is in a queue. Whose consumer settles a message, and how many consumers a queue
// has, makes no difference.
//
// # Faults
//
// A test can take connections away ([Broker.Cut], [Broker.Refuse]), block
// publishers ([Broker.Block]), and have the next messages, confirms and
// acknowledgements go wrong in the ways they do on a real network:
// [Broker.LosePublishes], [Broker.LoseConfirms], [Broker.LoseAcks],
// [Broker.Nack], [Broker.Duplicate]. They strike all connections but the test's
// own hands: [Broker.Publish] and [Broker.Declare] go undisturbed.
//
// # The end
//
// When the test ends, be it by t.Fatal in the middle, faults are healed, workers
// stopped, clients closed and the broker shut down, in this order. A client that
// the test has dialled itself, it closes itself. Goroutines that are left in the
// bubble fail the test and are listed. If it has failed, what happened and where
// messages are is logged.
package reprisetest
