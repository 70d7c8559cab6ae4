// Package reprisetest tests handlers, policies and topologies in the process of
// the test, on a broker of its own, where four hours of back-off take no time.
//
//	func TestCharge(t *testing.T) {
//		reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
//			w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: charge})
//			b.Publish(t, &reprise.Message{RoutingKey: "orders", Body: order})
//			b.Drain(t) // until nothing is left to do
//			w.Attempts().Delays() // how long each retry waited
//			b.Parked(t, "orders") // the messages that were given up, with the errors
//		})
//	}
//
// The broker is that of package broker and the worker is the one that runs in
// production. Only time is simulated: [Run] calls the test in a bubble of
// testing/synctest, where the clock jumps to the next event when all goroutines wait.
// Tests may run in parallel: each has a broker and a clock of its own.
//
// A bubble has no network. [Listen] starts a broker for other processes and other
// languages, with the same helpers, in real time. [New] is for a bubble that the test
// has made itself, and for benchmarks.
//
// A test can cut connections ([Broker.Cut], [Broker.Refuse]), block publishers
// ([Broker.Block]) and make the next messages, confirms and acknowledgements fail as
// they do on a network: [Broker.LosePublishes], [Broker.LoseConfirms],
// [Broker.LoseAcks], [Broker.Nack], [Broker.Duplicate]. [Broker.Publish] and
// [Broker.Declare] are not affected.
//
// When the test ends, also by t.Fatal, faults are healed, workers stopped, clients
// closed and the broker shut down, in this order. A test closes the clients that it has
// dialled itself. Goroutines that are left in the bubble fail the test and are listed.
// A test that has failed logs its events and where its messages are.
//
// It imports packages reprise and broker, and no module but amqp091-go.
package reprisetest
