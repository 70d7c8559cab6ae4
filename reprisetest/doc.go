// Package reprisetest tests handlers, policies and topologies against a broker in the process of the test. In virtual
// time, a backoff of four hours does not take real time.
//
//	func TestCharge(t *testing.T) {
//		reprisetest.Run(t, func(t *testing.T, b *reprisetest.Broker) {
//			w := b.Work(t, reprise.WorkerConfig{Queue: "orders", Handler: charge})
//			b.Publish(t, &reprise.Message{RoutingKey: "orders", Body: order})
//			b.Drain(t) // until no message is in flight
//			w.Attempts().Delays() // the delay of each retry
//			b.Parked(t, "orders") // the parked messages, with their errors
//		})
//	}
//
// The broker is package broker, and the worker is the same as in production. Only time and the network are simulated:
// [Run] calls the test in a bubble of testing/synctest, where the clock jumps to the next event when all goroutines are
// blocked, and connects clients in memory. Tests may run in parallel, because each test has its own broker and clock.
//
// A bubble has no network. [Listen] starts a broker for other processes and other languages, with the
// same helpers, in real time. [New] is for benchmarks, and for a bubble that the test creates itself.
//
// A test can cut connections ([Broker.Cut], [Broker.Refuse]) and block publishers ([Broker.Block]). It can also make
// the next messages, confirms and acknowledgements fail, as on an unreliable network: [Broker.LosePublishes],
// [Broker.LoseConfirms], [Broker.LoseAcks], [Broker.Nack], [Broker.Duplicate]. These faults do not affect
// [Broker.Publish] and [Broker.Declare], except that [Broker.Publish] waits for [Broker.Unblock].
//
// When the test ends, even after t.Fatal, the package heals faults, stops workers, closes clients and shuts down the
// broker, in this order. The test must close the clients that it has dialed itself. If goroutines remain in the bubble, the
// test fails and lists them. A failed test logs its events and the location of its messages.
//
// The package imports packages reprise, backoff, broker and topology, internal packages, and no module except
// amqp091-go.
package reprisetest
