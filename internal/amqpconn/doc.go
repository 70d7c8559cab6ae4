// Package amqpconn is the only package that imports the AMQP client, amqp091-go. Its types
// are what the worker library needs of AMQP 0-9-1: a [Link] that keeps a connection alive,
// a [Conn] that is one generation of it, a [Channel] for requests, deliveries and
// acknowledgements, and a [Confirming] channel to publish on.
//
// It promises:
//
//   - a [Conn] or [Channel] is lost once and never comes back, so that a delivery can only
//     be settled where it came from
//   - a request ends when its context ends, and requests of one channel do not take each
//     other's answers
//   - the result of a publication is true: a confirmed and routed message has no error, a
//     nack is a nack whatever the broker confirms after it, and the end of a channel is not
//     an answer
//
// The behavior of the client that matters to its users is handled here, in files named
// for it:
//
//	heldwrites.go   it writes each message to the socket by itself, and waits for a broker that
//	                does not read without a limit
//	confirms.go     it reports confirms in the order of their tags and lets a cumulative ack
//	                hide a nack before it; it calls what is in flight on a channel that ends
//	                refused; it drops a return that is not taken for 5 s
//	requests.go     it cannot give up a request, and mixes up the answers to concurrent ones
//	closed.go       it describes the end of a connection in its own words
//	tables.go       it writes an int in 32 bits, and knows only its own type as nested table
//	message.go      it fails half way through a header frame that is too large
//	url.go          it reads one host, and ignores parameters that it does not know
//
// Another implementation replaces the inside of this package. The tests in
// conformance_test.go use its exported API only: they state what an implementation has to do.
//
// It imports the packages topology, backoff and internal/retry.
package amqpconn
