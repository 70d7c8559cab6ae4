// Package amqpconn provides the AMQP 0-9-1 operations of the worker library: a [Link] keeps a connection alive, a [Conn] is
// one generation of the connection, a [Channel] carries requests, deliveries and acknowledgements, and a [Confirming]
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
// Below it is one of two clients, with the interface in client.go: native.go adapts package amqpclient, and amqp091.go adapts
// amqp091-go, which a URL can select. The tests in conformance_test.go use only the exported API, and run with both.
//
// The package compensates for the following behavior of amqp091-go. Each case is handled in one file:
//
//	amqp091.go      it reports confirms in the order of their tags and lets a cumulative ack
//	                hide an earlier nack; it reports messages in flight on a closed channel
//	                as refused; it drops a return that is not received for 5 s
//	socket.go       it writes each message to the socket separately, and waits indefinitely for a
//	                broker that does not read
//	filter.go       it loses properties that are present with the value 0
//	unreadable.go   it closes the connection for headers that it cannot decode
//	requests.go     it cannot cancel a request, and mixes up the answers to concurrent requests
//	closed.go       it reports unclear errors when a connection closes
//	tables.go       it writes an int in 32 bits, and supports nested tables only of its own type
//	message.go      it fails in the middle of a header frame that is too large
//	url.go          it reads one host, and ignores unknown parameters
package amqpconn
