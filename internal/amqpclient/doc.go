// Package amqpclient is an AMQP 0-9-1 client that exchanges the methods of package amqpwire. A [Conn] performs the
// handshake, sends heartbeats and detects a silent peer. A [Channel] sends requests and messages, and passes what the broker
// sends to its [Handler].
//
// The package knows the order of frames and methods, but not the meaning of most of them: package amqpconn adds confirms,
// consumers and reconnecting.
//
// One goroutine of a connection reads. It parses all frames that one read of the socket returns before it reads again, and
// calls the handlers itself. Writes append to a buffer. The goroutine that finds the socket idle writes the buffer until it
// is empty, so that the frames of all goroutines that wait for the socket leave in one write.
package amqpclient
