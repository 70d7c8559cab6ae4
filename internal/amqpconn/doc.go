// Package amqpconn wraps the AMQP client, amqp091-go, which the other packages of the worker library do not import. It
// provides the AMQP 0-9-1 operations of the worker library: a [Link] keeps a connection alive, a [Conn] is one
// generation of the connection, a [Channel] carries requests, deliveries and acknowledgements, and a [Confirming]
// channel publishes.
//
// The package guarantees:
//
//   - A lost [Conn] or [Channel] is never revived, so a delivery can only be settled on its channel.
//   - A request returns when its context is canceled, and concurrent requests of one channel do not receive the answers
//     of other requests.
//   - The result of a publication is correct. A confirmed and routed message has no error, a nack remains a nack even if
//     a later confirm is cumulative, and a closed channel does not count as an answer.
//
// The package compensates for the following behavior of the client. Each case is handled in one file:
//
//	socket.go       it writes each message to the socket separately, and waits indefinitely for a
//	                broker that does not read
//	confirms.go     it reports confirms in the order of their tags and lets a cumulative ack
//	                hide an earlier nack; it reports messages in flight on a closed channel
//	                as refused; it drops a return that is not received for 5 s
//	requests.go     it cannot cancel a request, and mixes up the answers to concurrent requests
//	closed.go       it reports unclear errors when a connection closes
//	tables.go       it writes an int in 32 bits, and supports nested tables only of its own type
//	message.go      it fails in the middle of a header frame that is too large
//	url.go          it reads one host, and ignores unknown parameters
//
// Replacing the client would change only the internals of this package. The tests in conformance_test.go use only the
// exported API. They specify the requirements for an implementation.
//
// The package imports the packages topology, backoff, internal/amqpvalue and internal/retry.
package amqpconn
